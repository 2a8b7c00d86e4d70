from greenadapt.names import path_name


def test_a_path_is_named_by_its_last_part_and_its_place() -> None:
    one, other = path_name("/a/bert.v2.tar.gz"), path_name("/b/bert.v2.tar.gz")
    assert one != other
    assert one.startswith("bert-")
    assert len(one) == len("bert-") + 8
    assert path_name("https://x.org/../?").startswith("unnamed-")
