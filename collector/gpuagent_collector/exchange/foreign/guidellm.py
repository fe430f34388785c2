def recognise(d):
    return False


def read(d):
    return []


recognise_csv = recognise
read_csv = read
