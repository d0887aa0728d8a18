/* tc_sidecars_* against a daemon that answers what each test wants: the truth and every kind of contradiction. What is on
 * disk afterwards is whole files and nothing else. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "client/tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "tests/support/model_dir.h"
#include "tests/support/rpc_fixture.h"

struct answer { /* one event: a list entry, or a chunk when data is set */
    const char *name;
    uint64_t bytes;
    const char *data;
    uint32_t file;
    uint64_t offset;
};
enum { MAX_ANSWERS = 8 };

static struct fake {
    struct answer answers[MAX_ANSWERS];
    bool without_list;
    struct error error; /* at the end */
    bool list_only;     /* seen */
} fake;

static struct rpc_fixture fixture;
static struct tc_client *client;
static char folder[MODEL_PATH_CHARS], target[MODEL_PATH_CHARS];
static struct tc_error error;

/* As in test_client.c: what a race detector cannot see. */
static void meet(void)
{
    static _Atomic int turn;
    turn++;
}

static void send_list(struct rpc_call *call, const struct answer *answers)
{
    Tensorcast__Daemon__V1__SidecarEvent event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarList list = TENSORCAST__DAEMON__V1__SIDECAR_LIST__INIT;
    Tensorcast__Daemon__V1__File files[MAX_ANSWERS], *pointers[MAX_ANSWERS];
    for (const struct answer *answer = answers; answer->name && !answer->data; answer++) {
        tensorcast__daemon__v1__file__init(&files[list.n_files]);
        files[list.n_files].name = (char *)answer->name;
        files[list.n_files].bytes = answer->bytes;
        pointers[list.n_files] = &files[list.n_files];
        list.n_files++;
    }
    list.files = pointers;
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST;
    event.list = &list;
    rpc_call_send(call, &event.base);
}

static void send_chunk(struct rpc_call *call, const struct answer *answer)
{
    Tensorcast__Daemon__V1__SidecarEvent event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarChunk chunk = TENSORCAST__DAEMON__V1__SIDECAR_CHUNK__INIT;
    chunk.file = answer->file;
    chunk.offset = answer->offset;
    chunk.data = (ProtobufCBinaryData){strlen(answer->data), (unsigned char *)answer->data};
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK;
    event.chunk = &chunk;
    rpc_call_send(call, &event.base);
}

static void on_fetch(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    meet();
    fake.list_only = ((const Tensorcast__Daemon__V1__FetchSidecarsRequest *)message)->list_only;
    const struct fake now = fake; /* a client that refuses the list has the next test under way before the rest is sent */
    meet();
    if (!now.without_list)
        send_list(call, now.answers);
    for (size_t i = 0; i < MAX_ANSWERS; i++)
        if (now.answers[i].data)
            send_chunk(call, &now.answers[i]);
    if (now.error.code)
        rpc_call_fail(call, &now.error);
    else
        rpc_call_end(call);
}

static void on_other(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message, (void)context;
    rpc_call_end(call);
}

#define ROW(name_, streams_, fn)                                                                                            \
    {                                                                                                                       \
        .service = &tensorcast__daemon__v1__store_daemon__descriptor, .name = (name_), .streams = (streams_),               \
        .handle = (fn)                                                                                                      \
    }
static const struct rpc_method methods[] = {
    ROW("Resolve", false, on_other),      ROW("Explain", false, on_other), ROW("Materialize", true, on_other),
    ROW("Prewarm", false, on_other),      ROW("Release", false, on_other), ROW("Status", false, on_other),
    ROW("FetchSidecars", true, on_fetch), ROW("Verify", false, on_other),  ROW("Unpin", false, on_other),
    ROW("MakeFolder", true, on_other),    ROW("Blame", false, on_other),
};

static int start(void **state)
{
    struct error cause;
    memset(&fake, 0, sizeof fake);
    memset(&error, 0, sizeof error);
    model_dir_create(folder);
    model_dir_path(folder, "out", target);
    rpc_fixture_prepare(&fixture, methods, sizeof methods / sizeof methods[0], NULL);
    assert_int_equal(rpc_fixture_start(&fixture, &cause), 0);
    rpc_fixture_ready(&fixture);
    client = tc_connect(fixture.socket, NULL);
    return 0;
}

static int stop(void **state)
{
    tc_disconnect(client);
    rpc_fixture_stop(&fixture);
    model_dir_destroy(folder);
    return 0;
}

static struct tc_sidecars *fetch(void)
{
    const struct tc_options options = {.timeout_ms = 20000};
    meet();
    struct tc_sidecars *sidecars = tc_sidecars_fetch(client, "disk:/m", target, &options, &error);
    meet();
    return sidecars;
}

static void assert_holds(const char *name, const char *expected)
{
    char path[MODEL_PATH_CHARS], text[64] = "";
    int fd = open(model_dir_path(target, name, path), O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof text - 1), strlen(expected));
    assert_string_equal(text, expected);
    close(fd);
}

static size_t n_entries(void)
{
    size_t n = 0;
    DIR *directory = opendir(target);
    assert_non_null(directory);
    while (readdir(directory))
        n++;
    closedir(directory);
    return n - 2; /* . and .. */
}

static const struct answer good[] = {
    {"config.json", 5, NULL, 0, 0},
    {"empty.txt", 0, NULL, 0, 0},
    {"b.json", 2, NULL, 0, 0},
    {"", 0, "abc", 0, 0},
    {"", 0, "de", 0, 3},
    {"", 0, "", 1, 0},
    {"", 0, "{}", 2, 0},
};

TEST_IN(files_arrive_whole_and_in_order, start, stop)
{
    uint64_t bytes;
    memcpy(fake.answers, good, sizeof good);
    struct tc_sidecars *sidecars = fetch();
    assert_non_null(sidecars);
    assert_false(fake.list_only);
    assert_int_equal(tc_sidecars_n_files(sidecars), 3);
    assert_string_equal(tc_sidecars_file(sidecars, 0, &bytes), "config.json");
    assert_int_equal(bytes, 5);
    tc_sidecars_release(sidecars);
    assert_holds("config.json", "abcde");
    assert_holds("empty.txt", "");
    assert_holds("b.json", "{}");
    assert_int_equal(n_entries(), 3);
}

TEST_IN(a_list_alone_writes_nothing, start, stop)
{
    memcpy(fake.answers, good, 3 * sizeof good[0]);
    struct tc_sidecars *sidecars = tc_sidecars_list(client, "disk:/m", NULL, &error);
    meet();
    assert_non_null(sidecars);
    assert_true(fake.list_only);
    assert_int_equal(tc_sidecars_n_files(sidecars), 3);
    tc_sidecars_release(sidecars);
    assert_int_equal(access(target, F_OK), -1);
}

TEST_IN(an_older_file_and_a_link_are_replaced_and_not_followed, start, stop)
{
    memcpy(fake.answers, good, sizeof good);
    model_dir_mkdir(folder, "out");
    model_dir_write(folder, "victim", "keep", 4);
    model_dir_write(target, "config.json", "something older", 15);
    model_dir_link(target, "b.json", "../victim");
    struct tc_sidecars *sidecars = fetch();
    assert_non_null(sidecars);
    tc_sidecars_release(sidecars);
    assert_holds("config.json", "abcde");
    assert_holds("b.json", "{}");
    assert_holds("../victim", "keep");
}

TEST_IN(an_error_in_the_middle_leaves_whole_files_only, start, stop)
{
    memcpy(fake.answers, good, sizeof good);
    fake.answers[6].data = "{"; /* half of the last one */
    fail(&fake.error, ERROR_DATA_LOSS, "TORN", "half of it");
    assert_null(fetch());
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_string_equal(error.reason, "TORN");
    assert_holds("config.json", "abcde");
    assert_int_equal(n_entries(), 2);
}

static void assert_bad_answer(void)
{
    struct tc_sidecars *sidecars = fetch();
    assert_null(sidecars);
    assert_int_equal(error.code, ERROR_INTERNAL);
    assert_string_equal(error.reason, "BAD_ANSWER");
    assert_int_equal(n_entries(), 0);
}

TEST_IN(a_name_that_leaves_the_folder_is_refused, start, stop)
{
    static const char *const names[] = {"../config.json", "/tmp/config.json", ".config.json",
                                        "a/b.json",       "x.safetensors",    ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fake.answers[0] = (struct answer){names[i], 1, NULL, 0, 0};
        fake.answers[1] = (struct answer){"", 0, "x", 0, 0};
        assert_bad_answer();
    }
}

TEST_IN(chunks_that_contradict_the_list_are_refused, start, stop)
{
    static const struct answer chunks[] = {
        {"", 0, "toolong", 0, 0}, {"", 0, "x", 1, 0}, {"", 0, "x", 0, 1}, {"", 0, "", 0, 0}, {"", 0, "half", 0, 0},
    };
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        fake.answers[0] = (struct answer){"config.json", 5, NULL, 0, 0};
        fake.answers[1] = chunks[i];
        assert_bad_answer();
    }
}

TEST_IN(a_file_beyond_the_size_limit_is_refused, start, stop)
{
    fake.answers[0] = (struct answer){"config.json", (64u << 20) + 1, NULL, 0, 0};
    assert_bad_answer();
}

TEST_IN(an_answer_without_a_list_is_refused, start, stop)
{
    fake.without_list = true;
    assert_bad_answer();
}

TEST_IN(a_folder_that_cannot_be_made_is_an_error_that_names_it, start, stop)
{
    model_dir_path(folder, "missing/out", target);
    assert_null(fetch());
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(error.message, "missing/out"));
}
