"""What --model-loader-extra-config may say, and when ranks tell the daemon that they load together."""
import itertools

import pytest
from tensorcast_vllm.options import LoaderOptions, parse
from tensorcast_vllm.topology import LOCAL_FILE_SYSTEMS, Place, client_options, file_system_of, hint

PAIR = Place("engine", "dp 0 pp 0", 1, 2)


def test_nothing_said_is_the_defaults():
    assert parse({}) == LoaderOptions()


@pytest.mark.parametrize("given, message", [
    ({"sockett": "/x"}, "do you mean 'socket'"),
    ({"zzz": 1}, "there are adopt, collective_hint"),
    ({"adopt": "always"}, "adopt is 'always'; it is auto or never"),
    ({"adopt": ["auto"]}, "auto or never"),
    ({"verify": "yes"}, "true or false"),
    ({"verify": 1}, "true or false"),
    ({"socket": ""}, "a text"),
    ({"collective_policy": "require_collective", "collective_hint": "never"}, "needs the hint"),
    ({"gpu_handoff": "always"}, "auto or never"),
    ({"fallback": True}, "never or if_unavailable"),
    ({"variant": ""}, "the path of a recipe, a built-in one, or a recipe"),
    ({"variant": ["cast"]}, "the path of a recipe"),
    ({"variant": "x.yaml", "variant_set": "heads=2"}, "variant_set is 'heads=2'; it is an object"),
    ({"variant_set": {"heads": 2}}, "of no use without variant"),
    ({"variant": "x.yaml", "verify": True}, "knows no variant"),
    ({"variant": "x.yaml", "fallback": "if_unavailable"}, "knows no variant"),
    ({"collective_policy": "required"}, "disable_collective or allow_not_eligible_fallback or require_collective"),
])
def test_what_is_wrong_is_refused_with_what_would_be_right(given, message):
    with pytest.raises(ValueError, match=message):
        parse(given)


def test_no_object_is_refused():
    with pytest.raises(ValueError, match="JSON object"):
        parse("socket")


@pytest.mark.parametrize("kind", [*sorted(LOCAL_FILE_SYSTEMS), "nfs4", "fuse.juicefs", "lustre", None])
def test_by_default_no_file_system_makes_ranks_load_together(kind):
    assert hint(LoaderOptions(), PAIR, kind)[0] is False


def test_who_asks_for_it_gets_a_group_and_one_rank_never_does():
    for option in ({"collective_hint": "always"}, {"collective_policy": "require_collective"}):
        assert hint(parse(option), PAIR, "ext4")[0] and not hint(parse(option), PAIR._replace(size=1, rank=0), "ext4")[0]
    assert not hint(parse({"collective_policy": "disable_collective"}), PAIR, "nfs")[0]


def test_all_ranks_derive_the_same_group_and_no_others_do():
    options = parse({"collective_policy": "require_collective"})
    both = [client_options(options, PAIR._replace(rank=rank), "disk:/m", True) for rank in (0, 1)]
    assert both[0].group.id == both[1].group.id and [given.group.rank for given in both] == [0, 1]
    assert both[0].collective == "required" and both[0].group.world_size == 2
    places = (PAIR, PAIR._replace(engine="next"), PAIR._replace(group="dp 1 pp 0"))
    others = [client_options(options, *which, True).group.id for which in itertools.product(places, ("disk:/m", "disk:/n"))]
    assert len(set(others)) == len(others) and both[0].group.id in others


def test_what_only_one_rank_asks_for_is_not_required_to_be_collective():
    given = client_options(parse({"collective_policy": "require_collective"}), PAIR, "disk:/m", False)
    assert (given.collective, given.group) == ("auto", None)


def test_the_options_of_a_request_are_what_the_user_said():
    options = parse({"executor": "generic", "collective_policy": "disable_collective", "source_locality": "shared_source",
                     "source_sharing_domain": "rack"})
    given = client_options(options, PAIR, "disk:/m", False)
    assert (given.executor, given.collective, given.group) == ("generic", "disabled", None)
    assert (given.source_locality, given.source_sharing_domain) == ("shared_source", "rack")


def test_the_innermost_mount_decides_the_file_system(tmp_path):
    model = tmp_path / "a b" / "model"
    model.mkdir(parents=True)
    inner = str(tmp_path / "a b").replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / {inner} rw shared:1 - fuse.juicefs j rw\n"
                      f"3 1 0:6 / {inner}x rw - nfs4 n rw\n")
    assert file_system_of(model, mounts) == "fuse.juicefs" and file_system_of("/", mounts) == "ext4"


def test_unreadable_mounts_are_an_unknown_file_system(tmp_path):
    assert file_system_of("/", tmp_path / "none") is None
    (tmp_path / "damaged").write_text("what\n")
    assert file_system_of("/", tmp_path / "damaged") is None
