/* The lines that operators grep for: which there are for a load, a plan, a group and a failure. */
#include "tests/support/unit.h"

#include "load/load_log.h"
#include "observe/log.h"
#include "tests/support/group_stage.h"

#include <sys/mman.h>
#include <unistd.h>

static int lines_fd;

static const char *lines(void)
{
    static char text[1 << 16];
    ssize_t n = pread(lines_fd, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

/* The line with that event and, unless NULL, that text. */
static const char *find_line(const char *event, const char *with)
{
    static char line[4096], wanted[128];
    snprintf(wanted, sizeof wanted, "event=%s ", event);
    for (const char *at = lines(), *end; *at; at = *end ? end + 1 : end) {
        end = strchrnul(at, '\n');
        snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
        if (strstr(line, wanted) && (!with || strstr(line, with)))
            return line;
    }
    return NULL;
}

static int set_up_with_log(void **state)
{
    lines_fd = memfd_create("lines", MFD_CLOEXEC);
    log_use(dup(lines_fd), LOG_DEBUG, LOG_LOGFMT);
    return group_set_up(state);
}

static int tear_down_with_log(void **state)
{
    log_use(dup(STDERR_FILENO), LOG_ERROR, LOG_LOGFMT);
    close(lines_fd);
    return group_tear_down(state);
}

static void assert_has(const char *line, const char *text)
{
    assert_non_null(line);
    if (!strstr(line, text))
        fprintf(stderr, "no %s in: %s\n", text, line);
    assert_non_null(strstr(line, text));
}

TEST_IN(a_load_has_a_plan_timings_and_an_end, set_up_with_log, tear_down_with_log)
{
    struct group_stage *group = *state;
    struct stage_client first, second;
    char id[64];
    stage_client_init(&group->stage, &first, "memory:m");
    stage_submit(&first);
    stage_run(&group->stage);
    snprintf(id, sizeof id, "load_id=%s ", ticket_result(first.ticket)->load_id);
    assert_has(find_line("strategy_plan", id), "candidates=");
    assert_has(find_line("strategy_plan", id), "artifact=memory:m");
    assert_has(find_line("load_done", id), "from_replica=false joined=false");
    assert_has(find_line("load_done", id), "needed_bytes=8388608");
    assert_has(find_line("load_done", id), " peer_bytes=0 ");
    assert_non_null(find_line(executor_names[ticket_result(first.ticket)->plan->executor], "action=timings"));
    stage_client_init(&group->stage, &second, "memory:m");
    stage_submit(&second);
    stage_run(&group->stage);
    snprintf(id, sizeof id, "load_id=%s ", ticket_result(second.ticket)->load_id);
    assert_has(find_line("load_done", id), "from_replica=true joined=false");
    assert_has(find_line("load_done", id), "read_bytes=0");
    stage_let_go(&first);
    stage_let_go(&second);
}

TEST_IN(a_failure_says_what_and_why, set_up_with_log, tear_down_with_log)
{
    struct group_stage *group = *state;
    struct stage_client client;
    stage_client_init(&group->stage, &client, "memory:nobody");
    client.input.pid = 4711;
    stage_submit(&client);
    stage_run(&group->stage);
    const char *line = find_line("load_failed", NULL);
    assert_has(line, "level=info");
    assert_has(line, "pid=4711");
    assert_has(line, "artifact=memory:nobody");
    assert_has(line, "code=");
    assert_null(find_line("load_done", NULL));
}

TEST_IN(a_group_tells_once_what_all_ranks_did, set_up_with_log, tear_down_with_log)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    const char *line = find_line("owner_file_collective", "transport=nccl");
    assert_has(line, "action=timings group_id=g original=collective_disk_load");
    assert_has(line, "world_size=2 memories=2");
    assert_has(line, "collective_unique_source_bytes=8388608");
    for (uint32_t rank = 0; rank < 2; rank++)
        group_assert_loaded(&clients[rank], rank);
}

TEST_IN(a_process_of_one_user_tells_of_its_loads_nobody_else, set_up_with_log, tear_down_with_log)
{
    struct group_stage *group = *state;
    struct stage_client client;
    group->stage.services.of_one_user = true;
    stage_client_init(&group->stage, &client, "memory:m");
    stage_submit(&client);
    stage_run(&group->stage);
    assert_null(find_line("load_done", NULL));
    stage_let_go(&client);
}

TEST(there_is_none_without_targets)
{
    const struct mapping mapping = {.view_bytes = 10};
    const struct load_result result = {.mapping = &mapping};
    struct into_report report;
    assert_false(into_report_make(&result, &report));
}

TEST(a_plan_tells_what_is_to_be_written_and_how)
{
    static const struct {
        enum executor executor;
        bool has_address, converts, is_direct, is_ordered, is_collective;
    } rows[] = {{EXECUTOR_TENSOR_BATCHED_LOCAL, true, false, true, true, false},
                {EXECUTOR_GENERIC_BYTE_RANGE, true, true, false, false, false},
                {EXECUTOR_OWNER_FILE_COLLECTIVE, false, false, false, true, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct device device = {.caps.direct_segments = rows[i].has_address};
        const struct mapping mapping = {
            .has_targets = true, .view_bytes = 10, .fill_bytes = 5, .n_operations = rows[i].converts ? 2 : 0};
        const struct plan plan = {.executor = rows[i].executor, .residual_bytes = 3};
        const struct load_result result = {.device = &device, .mapping = &mapping, .plan = &plan};
        struct into_report report;
        assert_true(into_report_make(&result, &report));
        assert_int_equal(report.direct_write_supported, rows[i].is_direct);
        assert_int_equal(report.source_ordered, rows[i].is_ordered);
        assert_int_equal(report.collective_handled, rows[i].is_collective);
        assert_string_equal(report.dominant_executor, executor_names[rows[i].executor]);
        assert_int_equal(report.committed_bytes, 15);
        assert_int_equal(report.fallback_bytes, 3);
    }
}
