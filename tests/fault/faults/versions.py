"""Versions that do not fit."""

from random import Random

import duckdb

from tests.fault.site import Site

_NEWER = "INSERT INTO schema_migrations VALUES (999, '0999_later.sql', now()::TIMESTAMP)"
_OLDER = "DELETE FROM schema_migrations WHERE version = 999"


def collector_downgraded(site: Site, random: Random) -> None:
    """The store was written by a newer collector: this one refuses in words, until it is upgraded again."""
    site.kill_collector()
    _change(site, _NEWER)
    store = str(site.node.store)
    refused = site.node.run("collector", "serve", "--listen", site.address, "--store", store, code=1)
    assert "written by a newer collector" in refused.stderr, refused.stderr
    _change(site, _OLDER)
    site.start_collector()


def _change(site: Site, sql: str) -> None:
    with duckdb.connect(str(site.node.store)) as connection:
        connection.execute(sql)
