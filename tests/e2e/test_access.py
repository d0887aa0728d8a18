"""Files that the daemon may not have: the message says which, whose they are, and what helps."""
import os
import pwd

import pytest

from checkpoints import blob, write
from stage import MiB

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="starts the daemon as another user, which takes root")
HELP = "or put the daemon's user into a group that may (SupplementaryGroups= of tensorcastd.service)"


@pytest.fixture
def nobodys(start):
    return start(running=False).start(user="nobody")


@pytest.fixture
def owner():
    return f"owner {pwd.getpwuid(0).pw_name} (uid 0)"


def refusal(daemon, *command):
    outcome = daemon.cli.run(*command)
    assert outcome.status == "PERMISSION_DENIED", outcome
    return outcome.err


@ROOT_ONLY
def test_a_part_file_that_the_daemons_user_may_not_read_is_named_with_its_path_mode_owner_and_remedy(nobodys, models, owner):
    write(models / "m", {"a": blob(1, MiB)}, {"b": blob(2, MiB)})
    other, part = sorted((models / "m").glob("*.safetensors"))
    other.chmod(0o644)
    part.chmod(0o600)  # as save_pretrained leaves it
    user = f"the daemon's user nobody (uid {pwd.getpwnam('nobody').pw_uid})"
    said = refusal(nobodys, "load", f"disk:{models}/m")
    assert f"PERMISSION_DENIED: {user} may not read {part} (mode 0600, {owner}); chmod a+r it, {HELP}\n" in said, said
    part.chmod(0o644)
    assert nobodys.cli.ok("load", f"disk:{models}/m")


@ROOT_ONLY
def test_a_folder_that_may_not_be_entered_or_listed_is_the_one_that_is_named(nobodys, models, owner):
    write(models / "deep/private/m", {"a": blob(1, MiB)})
    private = models / "deep/private"
    private.chmod(0o700)
    said = refusal(nobodys, "load", f"disk:{private}/m")
    assert f"may not enter {private} (mode 0700, {owner}); chmod a+x it, {HELP}" in said, said
    private.chmod(0o755)
    (private / "m").rename(private / "n")
    (private / "n/model.safetensors").rename(private / "n/one.safetensors")  # found by listing
    (private / "n").chmod(0o711)
    said = refusal(nobodys, "inspect", f"disk:{private}/n")
    assert f"may not list {private}/n (mode 0711, {owner}); chmod a+rx it, {HELP}" in said, said


@ROOT_ONLY
def test_a_sidecar_that_may_not_be_read_is_named_too(nobodys, models, tmp_path, owner):
    write(models / "m", {"a": blob(1, MiB)})
    (models / "m/config.json").write_text("{}")
    (models / "m/config.json").chmod(0o600)
    said = refusal(nobodys, "fetch", f"disk:{models}/m", "--sidecars", tmp_path / "out")
    assert f"may not read {models}/m/config.json (mode 0600, {owner}); chmod a+r it" in said, said


def test_a_snapshot_of_the_hubs_cache_as_a_root_is_told_to_trust_the_cache(start, models):
    repository = models / "hub/models--org--tiny"
    write(repository / "blobs", {"a": blob(1, MiB)})
    (repository / "blobs/model.safetensors").rename(repository / "blobs/3f2a")
    (repository / "snapshots/aaaa").mkdir(parents=True)
    (repository / "snapshots/aaaa/model.safetensors").symlink_to("../../blobs/3f2a")
    daemon = start(sources={"disk": {"trusted_roots": [str(repository / "snapshots")]}})
    file = repository / "snapshots/aaaa/model.safetensors"
    said = refusal(daemon, "load", f"disk:{repository}/snapshots/aaaa")
    assert (f"{file} is a link to ../../blobs/3f2a, which is outside the trusted roots; add {models}/hub to "
            "sources.disk.trusted_roots") in said, said
    follows = start(sources={"disk": {"trusted_roots": [str(models / "hub")]}})
    assert follows.cli.ok("load", f"disk:{repository}/snapshots/aaaa")
