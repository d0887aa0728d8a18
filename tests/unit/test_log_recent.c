/* The last lines that the page shows. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "observe/log_recent.h"

static char *written(void)
{
    struct json_writer writer = {0};
    log_recent_write(&writer);
    return writer.text;
}

static int set_up(void **state __attribute__((unused)))
{
    log_use(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_INFO, LOG_LOGFMT);
    return 0;
}

static int tear_down(void **state __attribute__((unused)))
{
    log_recent_forget();
    log_use(dup(STDERR_FILENO), LOG_INFO, LOG_LOGFMT);
    return 0;
}

TEST_IN(nothing_is_kept_before_it_is_asked_for_and_after_it_is_forgotten, set_up, tear_down)
{
    log_info("ready", LOG_U64("pid", 1));
    char *text = written();
    assert_string_equal(text, "[]");
    free(text);
    log_recent_keep();
    log_info("ready", LOG_U64("pid", 2));
    log_debug("strategy_plan", LOG_U64("pid", 3)); /* its level is off */
    text = written();
    assert_non_null(strstr(text, "\"level\":\"info\",\"event\":\"ready\",\"pid\":2}]"));
    assert_null(strstr(text, "strategy_plan"));
    free(text);
    log_recent_forget();
    log_info("ready", LOG_U64("pid", 4));
    text = written();
    assert_string_equal(text, "[]");
    free(text);
}

TEST_IN(the_65th_line_takes_the_place_of_the_first, set_up, tear_down)
{
    log_recent_keep();
    for (uint64_t i = 0; i < LOG_RECENT_LINES; i++)
        log_info("ready", LOG_U64("pid", 1000 + i));
    char *text = written();
    assert_non_null(strstr(text, "\"pid\":1000}"));
    free(text);
    log_info("ready", LOG_U64("pid", 1000 + LOG_RECENT_LINES));
    text = written();
    assert_null(strstr(text, "\"pid\":1000}"));
    assert_true(strstr(text, "\"pid\":1001}") < strstr(text, "\"pid\":1064}"));
    free(text);
}

TEST_IN(a_value_of_512_bytes_is_whole_and_a_longer_one_is_cut, set_up, tear_down)
{
    char value[LOG_RECENT_VALUE_BYTES + 2], *text;
    memset(value, 'a', sizeof value);
    value[LOG_RECENT_VALUE_BYTES + 1] = '\0';
    log_recent_keep();
    log_info("ready", LOG_TEXT("socket", value));
    text = written();
    value[LOG_RECENT_VALUE_BYTES] = '\0';
    const char *at = strstr(text, value);
    assert_non_null(at);
    assert_int_equal(at[LOG_RECENT_VALUE_BYTES], '"');
    free(text);
}
