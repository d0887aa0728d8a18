/* What `top` shows of a status: order, bars, rates, and that it fits a terminal. */
#include "tests/support/unit.h"

#include "client/cli/top_text.h"

enum { LOADS = 30 };

static Tensorcast__Daemon__V1__StatusResponse status;
static Tensorcast__Daemon__V1__LoadStatus loads[LOADS], *rows[LOADS];

/* Load i has i MiB to do, of which half is done after `i` seconds. */
static void make_status(size_t n)
{
    static char names[LOADS][32];
    status = (Tensorcast__Daemon__V1__StatusResponse)TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    for (size_t i = 0; i < n; i++) {
        loads[i] = (Tensorcast__Daemon__V1__LoadStatus)TENSORCAST__DAEMON__V1__LOAD_STATUS__INIT;
        snprintf(names[i], sizeof names[i], "disk:/models/m%zu", i);
        loads[i].artifact = names[i];
        loads[i].total_bytes = i << 20;
        loads[i].done_bytes = loads[i].total_bytes / 2;
        loads[i].age_s = (double)i;
        loads[i].stage = "read";
        loads[i].waited_for = "store";
        loads[i].pid = 4194304 - i;
        rows[i] = &loads[i];
    }
    status.state = "serving";
    status.loads = rows;
    status.n_loads = n;
    status.used_bytes = 3ull << 30;
    status.host_budget_bytes = 4ull << 30;
}

static size_t count_lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static size_t longest_line(const char *text)
{
    size_t longest = 0;
    while (*text) {
        size_t length = strcspn(text, "\n");
        longest = length > longest ? length : longest;
        text += length + (text[length] != '\0');
    }
    return longest;
}

TEST(loads_with_most_to_do_come_first_with_rate_time_and_reason)
{
    make_status(9);
    loads[3].waiting_for = "https://host to answer";
    char *text = top_text(&status, 0, 0);
    const char *last = text;
    for (int i = 8; i >= 0; i--) {
        const char *at = strstr(text, loads[i].artifact);
        assert_true(at > last);
        last = at;
    }
    assert_non_null(strstr(text, "  3.00 MiB   50 %   512 KiB/s       6 s       6 s  store    4194298  disk:/models/m6\n"));
    assert_non_null(strstr(text, "disk:/models/m3\n           waiting for https://host to answer\n"));
    assert_non_null(strstr(text, "0 %           -         -       0 s  store    4194304  disk:/models/m0\n"));
    free(text);
}

TEST(budgets_are_bars)
{
    Tensorcast__Daemon__V1__DeviceStatus device = TENSORCAST__DAEMON__V1__DEVICE_STATUS__INIT, *devices[] = {&device};
    make_status(0);
    device.used_bytes = 5ull << 30, device.budget_bytes = 4ull << 30; /* a budget that became smaller */
    status.devices = devices, status.n_devices = 1;
    char *text = top_text(&status, 80, 24);
    assert_non_null(strstr(text, "host     [##################      ]  75 %  3.00 GiB of 4.00 GiB\n"));
    assert_non_null(strstr(text, "cuda:0   [########################] 125 %  5.00 GiB of 4.00 GiB\n"));
    assert_non_null(strstr(text, "\nno load is running\n"));
    free(text);
}

TEST(it_fits_the_terminal_and_counts_what_it_leaves_out)
{
    make_status(LOADS);
    loads[LOADS - 1].artifact = "https://a-host-with-a-long-name.example/models/of-a-family-with-a-long-name/and-a-revision";
    for (size_t rows_of_it = 8; rows_of_it < 40; rows_of_it += 4) {
        size_t columns = rows_of_it % 8 ? 100 : 80;
        char *text = top_text(&status, columns, rows_of_it);
        assert_true(count_lines(text) <= (rows_of_it < 10 ? 10 : rows_of_it));
        assert_true(longest_line(text) <= columns);
        assert_true(!strstr(text, " pid ") == (columns == 80)); /* a narrow one has no room for it */
        assert_true(rows_of_it >= LOADS + 6 || strstr(text, "... and "));
        free(text);
    }
}

TEST(requests_that_wait_before_they_read_are_below)
{
    Tensorcast__Daemon__V1__RequestStatus one = TENSORCAST__DAEMON__V1__REQUEST_STATUS__INIT, other = one;
    Tensorcast__Daemon__V1__RequestStatus *requests[] = {&one, &other};
    make_status(1);
    one.method = other.method = "Materialize";
    one.waiting_for = "the other ranks of its group of 2";
    status.requests = requests, status.n_requests = 2;
    char *text = top_text(&status, 0, 0);
    const char *at = strstr(text, "Materialize");
    assert_non_null(strstr(at, "waiting for the other ranks of its group of 2\n"));
    assert_null(strstr(at + 1, "Materialize"));
    free(text);
}
