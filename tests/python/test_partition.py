"""The lines of a file that are one host's: every line is exactly one's, in both orders, as the command says."""
import numpy as np
import pytest

import tensorcast_client as tc


@pytest.mark.parametrize("order", ["nested", "flat"])
@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\r\n\n\0\xff\n", b"".join(b"%d\n" % n for n in range(101)) + b"end"])
@pytest.mark.parametrize("machines, hosts", [(1, 1), (1, 4), (3, 2), (4, 4)])
def test_every_line_is_exactly_one_hosts(tmp_path, order, text, machines, hosts):
    (tmp_path / "lines").write_bytes(text)
    told = [one for m in range(machines) for h in range(hosts)
            for one in tc.partition(tmp_path / "lines", machines=machines, machine=m, hosts=hosts, host=h, order=order)]
    want = text.split(b"\n")
    want = [line + b"\n" for line in want[:-1]] + [line for line in want[-1:] if line]
    assert sorted(told) == list(enumerate(want))


@pytest.mark.parametrize("order, want", [("nested", [4, 20, 36]), ("flat", [1, 17, 33])])
def test_the_orders_are_those_of_the_command(tmp_path, order, want):
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % n for n in range(48)))
    mine = tc.partition(str(tmp_path / "lines"), machines=np.int64(4), machine=0, hosts=4, host=1, order=order)
    assert list(mine) == [(n, b"%d\n" % n) for n in want]


@pytest.mark.parametrize("options", [{"machines": 0}, {"hosts": -1}, {"machine": 1}, {"hosts": 2, "host": 2}, {"host": -1}, {"hosts": 1.0},
                                     {"machines": True}, {"order": "x"}, {"machines": 1 << 32}])
def test_a_partition_that_cannot_be_is_a_value_error_at_once(tmp_path, options):
    (tmp_path / "lines").write_bytes(b"x\n")
    with pytest.raises(ValueError):
        tc.partition(tmp_path / "lines", **options)


def test_a_file_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        tc.partition(tmp_path / "none")
