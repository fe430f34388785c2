"""A shared lake whose files lie in a bucket, of a real S3-compatible server."""

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store import Store, StoreSpec
from tests.integration.lake.test_catalog import catalog_tables
from tests.support.buckets import Buckets, buckets
from tests.support.postgres import Postgres
from tests.support.servers import Node, until

pytestmark = [pytest.mark.slow, pytest.mark.needs("psql")]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buckets]:
    folder = tmp_path_factory.mktemp("s3") / "buckets"
    (folder / "bucket" / "full").mkdir(parents=True)
    (folder / "bucket" / "full" / "theirs").write_text("theirs")
    (folder / "bucket" / "begun").mkdir()
    (folder / "bucket" / "begun" / "written.parquet").write_text("another's")
    with buckets(folder) as running:
        yield running


def test_rows_go_into_a_bucket_are_compacted_there_and_come_back(
    node: Node, server: Postgres, s3: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    node.environment |= s3.environment
    lake = f"ducklake:postgres:{server.database()}"
    collector = node.serve(options=("--store", lake, "--data", "s3://bucket/path", "--commit-interval", "0.2"))
    agent = node.start("gpuagent", "start", log="agent.log")
    with Store.open(lake) as store, closing(store.connect()) as connection:

        def samples() -> int:
            ((count,),) = connection.execute("SELECT count(*) FROM host_samples").fetchall()
            return int(count)

        until(samples, "the first row")
        assert node.stop(agent) == 0
        assert node.stop(collector) == 0
        stored = samples()
        store.tidy()
        assert list(s3.folder.glob("bucket/path/main/host_samples/year=*/month=*/day=*/*.parquet"))
        assert samples() == stored


def test_a_bucket_in_which_another_collector_has_begun_is_no_obstacle(
    server: Postgres, s3: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    spec = StoreSpec.parse(f"ducklake:postgres:{server.database()}", "s3://bucket/begun")
    with Store.open(spec) as store, closing(store.connect()) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("data", "environment", "words"),
    [
        ("s3://bucket/new", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "AWS_SECRET_ACCESS_KEY are refused there"),
        ("s3://none/new", {}, "make that bucket, or name another with --data"),
        ("s3://bucket/new", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "set AWS_ACCESS_KEY_ID"),
        ("s3://bucket/full", {}, "contains files already, such as s3://bucket/full/theirs"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_told_in_words_and_no_lake_is_made(
    server: Postgres, s3: Buckets, monkeypatch: pytest.MonkeyPatch, data: str, environment: dict[str, str], words: str
) -> None:
    for name, value in (s3.environment | environment).items():
        monkeypatch.setenv(name, value)
    connection = server.database()
    with pytest.raises(StoreError, match=re.escape(words)):
        Store.open(StoreSpec.parse(f"ducklake:postgres:{connection}", data))
    assert catalog_tables(server, connection) == "0"
    assert not (s3.folder / "bucket" / "new").exists()
