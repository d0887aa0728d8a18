"""The membership plugin against a real etcd: entries are kept below a lease, every change is told, and every failure is told with its reason."""
import contextlib
import re
import signal
import subprocess
import threading
import time

import pytest

import etcd as etcd_scene
from etcd import Authority, Etcd, Gate
from stage import BUILD, soon

pytestmark = pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
TOOL, PLUGIN = BUILD / "tests/membership_tool", BUILD / "plugins/tensorcast-etcd.so"


class Session:
    """The plugin in a process of its own; `lines` are its events, `table` what they add up to."""

    def __init__(self, etcd, prefix="/t/", lease_s=3, username="", password="", certificate=None, ca=None, endpoints=None):
        pem = [str(path or "") for path in (ca or (etcd.authority and etcd.authority.file), *(certificate or ("", "")))]
        self.process = subprocess.Popen([TOOL, PLUGIN, prefix, str(lease_s), username, password, *pem, *(endpoints or etcd.endpoints)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines, self.table, self.state = [], {}, None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        fresh = None
        for line in self.process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "begin":
                fresh = {}
            elif word == "end":
                self.table, fresh = fresh, None
            elif word == "put":
                key, _, value = rest.partition(" ")
                (self.table if fresh is None else fresh)[key] = value
            elif word == "delete":
                self.table.pop(rest.strip(), None)
            elif word == "state":
                self.state = rest
            self.lines.append(line.rstrip("\n"))

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def has(self, key, value, seconds=30):
        return soon(lambda: self.table.get(key) == value, seconds)

    def said(self, pattern):
        return soon(lambda: any(re.match(pattern, line) for line in self.lines))

    def connected(self):
        return soon(lambda: self.state == "connected ")

    def away(self, pattern):
        return soon(lambda: re.match(f"away .*({pattern})", self.state or "", re.I))

    def close(self):
        with contextlib.suppress(OSError):
            self.say("close")
        return self.process.wait(60)


@pytest.fixture
def etcds(tmp_path):
    made = []

    def make(members=1, authority=None, options=()):
        folder = tmp_path / f"etcd{len(made)}"
        folder.mkdir()
        made.append(Etcd(folder, members, authority, options=options))
        return made[-1].start()
    yield make
    for one in made:
        one.kill()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One for the tests that neither end nor stop it. Each has it without entries."""
    made = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield made
    made.kill()


@pytest.fixture
def etcd(shared):
    yield shared
    shared.control("del", "", "--prefix")


@pytest.fixture
def join():
    made = []

    def make(*args, **more):
        made.append(Session(*args, **more))
        return made[-1]
    yield make
    for session in made:
        session.process.kill()


def test_an_entry_is_seen_by_all_and_leaves_with_its_session(etcd, join):
    a, b = join(etcd), join(etcd, lease_s=60)
    a.say("set hosts/a one")
    assert b.has("hosts/a", "one") and a.has("hosts/a", "one")
    assert etcd.control("get", "/t/hosts/a", "--print-value-only") == "one\n" and etcd.lease_of("/t/hosts/a") != "0"
    b.say("set hosts/b two")
    assert a.has("hosts/b", "two") and etcd.lease_of("/t/hosts/a") != etcd.lease_of("/t/hosts/b")
    started = time.monotonic()
    assert b.close() == 0
    assert a.has("hosts/b", None) and time.monotonic() - started < 30, "its lease goes on"


def test_closing_while_a_question_is_in_flight_takes_all_entries_out(etcd, join):
    a = join(etcd)
    for _ in range(5):
        b = join(etcd, lease_s=60)
        b.say("set hosts/b two")
        b.say("set hosts/c three")
        assert a.has("hosts/b", "two") and a.has("hosts/c", "three")
        b.say("unset hosts/b\nclose")
        assert a.has("hosts/b", None) and a.has("hosts/c", None)
        assert not any(line.startswith("state away") for line in b.lines), b.lines


def test_an_entry_outlives_a_killed_session_by_the_lease_alone(etcd, join):
    a, b = join(etcd), join(etcd)
    b.say("set hosts/b two")
    assert a.has("hosts/b", "two")
    b.process.kill()
    assert a.has("hosts/b", None)


def test_a_key_that_another_session_has_stays_the_others(etcd, join):
    a, b = join(etcd), join(etcd)
    a.say("set groups/g/0 a")
    assert b.has("groups/g/0", "a")
    b.say("set groups/g/0 b")
    b.say("set groups/g/1 b")
    assert a.has("groups/g/1", "b") and a.table["groups/g/0"] == "a"
    b.say("unset groups/g/0")
    b.say("unset groups/g/1")
    assert a.has("groups/g/1", None) and a.table["groups/g/0"] == "a"


def test_more_entries_than_a_page_are_all_told(etcd, join):
    a = join(etcd)
    for i in range(1203):
        a.say(f"set many/{i} {i}")
    assert soon(lambda: len(a.table) == 1203, 60)
    b = join(etcd)
    assert soon(lambda: len(b.table) == 1203) and b.table == {f"many/{i}": str(i) for i in range(1203)}


def test_other_prefixes_and_odd_entries_are_not_told(etcd, join):
    a = join(etcd)
    longest = "x" * 32767
    etcd.put({"/t0": "no", "/tother/a": "no", "/t/long": longest + "x", "/t/" + "k" * 600: "no", "/t/good": longest})
    assert a.has("good", longest) and a.table == {"good": longest}


@pytest.mark.parametrize("what", ["a NUL in the last key of a page", "a last key of a page without bound", "values larger than a message"])
def test_odd_entries_end_no_snapshot(etcd, join, what):
    """A page has 500 entries."""
    long = "k" * 600
    etcd.put({f"/t/a{i:03}": "x" for i in range(499)})
    if what.startswith("values"):
        for i in range(20):
            etcd.put({f"/t/b{i}": "x" * 1_000_000})
    else:
        etcd.put({"/t/a\0b" if "NUL" in what else f"/t/b{long}": "no"})
        etcd.put({f"/t/a\0{i}": "no" for i in range(499)} if "NUL" in what else {})
    etcd.put({"/t/z": "yes"})
    a = join(etcd)
    assert a.has("z", "yes") and len(a.table) == 500


@pytest.mark.parametrize("how", ["deleted", "revoked"])
def test_an_own_entry_that_goes_comes_back(etcd, join, how):
    """The next keepalive is sent after 20 minutes, so only the watch on the host's own entries can find it in time."""
    a, b = join(etcd, lease_s=3600), join(etcd)
    a.say("set hosts/a one")
    assert b.has("hosts/a", "one")
    before = etcd.lease_of("/t/hosts/a")
    etcd.control("del", "/t/hosts/a") if how == "deleted" else etcd.control("lease", "revoke", before)
    assert soon(lambda: any(line.startswith("delete hosts/a") for line in b.lines)) and b.has("hosts/a", "one")
    assert (etcd.lease_of("/t/hosts/a") == before) == (how == "deleted")
    assert how == "deleted" or a.said("state away .*Txn: .*lease not found"), a.lines


def test_an_etcd_that_restarts_is_joined_again_with_all_entries(etcds, join):
    etcd = etcds()
    a, b = join(etcd), join(etcd)
    a.say("set hosts/a one")
    assert b.has("hosts/a", "one")
    etcd.kill()
    assert a.away("refused|closed|connect") and b.away("")
    a.say("set hosts/a2 meanwhile")
    etcd.start()
    assert a.connected() and b.connected() and b.has("hosts/a", "one") and b.has("hosts/a2", "meanwhile")


def test_an_etcd_that_starts_later_is_joined(etcds, join):
    etcd = etcds()
    etcd.kill()
    a = join(etcd)
    a.say("set hosts/a one")
    assert a.away("refused|connect")
    etcd.start()
    assert a.connected() and a.has("hosts/a", "one")


def test_an_etcd_that_loses_its_data_gets_the_entries_again(etcds, join):
    etcd = etcds()
    a = join(etcd)
    a.say("set hosts/a one")
    etcd.put({"/t/other": "x"})
    assert a.has("hosts/a", "one") and a.has("other", "x")
    etcd.kill()
    for path in etcd.folder.glob("m0/*"):
        subprocess.run(["rm", "-rf", path], check=True)
    etcd.start()
    assert a.connected() and a.has("hosts/a", "one") and a.has("other", None)


def test_a_stopped_etcd_is_noticed_and_closing_does_not_wait_for_it(etcds, join):
    etcd = etcds()
    a, b = join(etcd), join(etcd)
    assert a.connected() and b.connected()
    etcd.send(signal.SIGSTOP)
    assert a.away("no answer")
    assert b.close() == 0
    etcd.send(signal.SIGCONT)
    assert a.connected()


def join_each_member(etcd, join, **more):
    sessions = [join(etcd, endpoints=etcd.endpoints[i:] + etcd.endpoints[:i], **more) for i in range(3)]
    for i, session in enumerate(sessions):
        session.say(f"set hosts/{i} {i}")
    assert all(session.has(f"hosts/{i}", str(i)) for session in sessions for i in range(3))
    return sessions


def test_of_three_members_one_may_die(etcds, join):
    etcd = etcds(3)
    sessions = join_each_member(etcd, join)
    etcd.kill(etcd.leader())
    sessions[0].say("set hosts/more x")
    assert all(session.has("hosts/more", "x") for session in sessions)
    assert all(session.connected() and soon(lambda: len(session.table) == 4) for session in sessions)  # noqa: B023


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_session_leaves_a_stopped_member_before_its_lease_ends(etcds, join, who):
    """A keepalive is sent after 6 s and has 3 s for its answer. The lease ends after 18 s."""
    etcd = etcds(3)
    sessions = join_each_member(etcd, join, lease_s=18)
    member = (etcd.leader() + (who == "follower")) % 3
    session, before = sessions[member], etcd.entry(f"/t/hosts/{member}")
    with etcd.stopped(member):
        assert session.said(f"state away {etcd.endpoints[member]}: no answer") and session.connected()
        session.say("set hosts/more x")
        assert all(other.has("hosts/more", "x") for other in sessions)
        after = etcd.entry(f"/t/hosts/{member}")
        assert after["create_revision"] == before["create_revision"] and after["lease"] != before["lease"]
    assert all(other.connected() and soon(lambda: len(other.table) == 4) for other in sessions)  # noqa: B023


def test_compaction_during_an_outage_loses_no_change(etcds, join):
    etcd = etcds()
    a = join(etcd)
    assert a.connected()
    a.process.send_signal(signal.SIGSTOP)
    for i in range(50):
        etcd.put({f"/t/k{i % 5}": i})
    revision = re.search(r'"revision":(\d+)', etcd.control("get", "/t/k0", "-w", "json"))[1]
    etcd.control("compact", revision)
    etcd.kill()
    etcd.start()
    a.process.send_signal(signal.SIGCONT)
    assert a.connected() and all(a.has(f"k{i}", str(45 + i)) for i in range(5))


@pytest.fixture
def join_gated(join):
    """A session whose request for the watch is held until the gate opens. The range before it has its answer by then."""
    gates = []

    def make(etcd, **more):
        gates.append(Gate(etcd, b"\x12\x03/t0", 2))  # the end of the range: in the question for the range, then in the watch
        session = join(etcd, endpoints=[gates[-1].endpoint], lease_s=3600, **more)
        assert gates[-1].held.wait(60) and session.connected() and session.table == {}
        return session, gates[-1]
    yield make
    for gate in gates:
        gate.close()


def test_a_watch_whose_revision_was_compacted_begins_with_a_new_snapshot(etcd, join_gated):
    a, gate = join_gated(etcd)
    etcd.put({"/t/gone": 1})
    etcd.control("del", "/t/gone")
    etcd.put({"/t/k": 1})
    etcd.put({"/t/k": 2})
    etcd.control("compact", etcd.entry("/t/k")["mod_revision"])
    gate.open()
    assert a.said("state away .*compacted"), a.lines
    assert a.connected() and a.has("k", "2")
    etcd.put({"/t/k": 3})
    assert a.has("k", "3") and a.table == {"k": "3"} and "put k 1" not in a.lines


def test_a_watch_that_etcd_refuses_is_told_and_asked_again(etcds, join_gated):
    """The user loses the permission between the range and the watch: etcd then creates the watch and cancels it in one answer."""
    etcd = etcds()
    etcd.add_user("tensorcast", "secret")
    permission = ("all", "--prefix=true", "/")
    a, gate = join_gated(etcd, username="tensorcast", password="secret")
    etcd.control("role", "revoke-permission", *permission)
    gate.open()
    assert a.said("state away .*the watch was refused: .*permission denied") and a.away("Range.*permission denied"), a.lines
    etcd.control("put", "/t/k", "meanwhile")
    etcd.control("role", "grant-permission", "all", "--prefix=true", "readwrite", "/")
    assert a.connected() and a.has("k", "meanwhile"), a.lines


@pytest.mark.parametrize("subject", ["/O=hosts", "/O=hosts/CN=tensorcast"])
@pytest.mark.parametrize("login", ["nobody", "password", "certificate"])
def test_client_certificates_and_users_are_taken(etcds, join, tmp_path, subject, login):
    authority = Authority(tmp_path)
    etcd = etcds(authority=authority)
    if login != "nobody":
        etcd.add_user("tensorcast", "secret")
    password = {"username": "tensorcast", "password": "secret"} if login == "password" else {}
    a = join(etcd, certificate=authority.issue("a", subject), **password)
    a.say("set hosts/a one")
    if login == "certificate" and "CN=" not in subject:
        assert a.away("permission denied|user name is empty"), a.lines
    else:
        assert a.has("hosts/a", "one"), a.lines


def test_a_token_that_etcd_forgot_is_renewed(etcds, join):
    """etcd forgets its tokens when it restarts."""
    etcd = etcds()
    etcd.add_user("tensorcast", "secret")
    a = join(etcd, username="tensorcast", password="secret")
    a.say("set hosts/a one")
    assert a.has("hosts/a", "one")
    etcd.kill()
    etcd.start()
    a.say("set hosts/b two")
    assert a.has("hosts/b", "two") and a.connected()


def test_a_token_that_expires_ends_no_session(etcds, join):
    """A quiet session does not use its token, so etcd forgets it, and says so in its log."""
    etcd = etcds(options=("--auth-token-ttl", "3", "--bcrypt-cost", "4", "--log-level", "info"))
    etcd.add_user("tensorcast", "secret")

    def expired(n):
        pattern = r'"deleted a simple token","user-name":"tensorcast"'
        return soon(lambda: len(re.findall(pattern, (etcd.folder / "m0.log").read_text())) >= n)
    a = join(etcd, username="tensorcast", password="secret", lease_s=3600)
    a.say("set hosts/a one")
    assert a.has("hosts/a", "one") and expired(1)
    told = len(a.lines)
    etcd.control("put", "/t/hosts/b", "two")
    assert a.has("hosts/b", "two")
    a.say("set hosts/c three")
    assert a.has("hosts/c", "three") and expired(2)
    a.say("unset hosts/c")
    assert a.has("hosts/c", None) and expired(3)
    assert a.close() == 0 and not any(line.startswith("state away") for line in a.lines[told:]), a.lines
    assert "/t/hosts/a" not in etcd.control("get", "/t/", "--prefix", "--keys-only"), "the lease goes on"


@pytest.mark.parametrize("what, pattern", [("another authority", "certificate"), ("no certificate", "cert_file"),
                                           ("a wrong password", "password"), ("plain text", "closed|reset|frame|settings|http")])
def test_a_refusal_is_told_with_its_reason(etcds, join, tmp_path, what, pattern):
    authority = Authority(tmp_path)
    etcd = etcds(authority=authority)
    more = {"certificate": authority.issue("a")}
    if what == "another authority":
        more["ca"] = Authority(tmp_path, "other").file
    elif what == "no certificate":
        more = {}
    elif what == "a wrong password":
        etcd.add_user("tensorcast", "secret")
        more |= {"username": "tensorcast", "password": "wrong"}
    else:
        more = {"endpoints": [etcd.endpoints[0].replace("https", "http")]}
    a = join(etcd, **more)
    assert a.away(pattern), a.lines
    assert "wrong" not in a.state and a.close() == 0
