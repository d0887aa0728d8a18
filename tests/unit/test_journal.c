/* Fields of an entry as systemd's native protocol has them. That a journal gets entries is tested end to end, in test_log.py. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "observe/journal.h"

static void assert_field(const char *value, size_t length, const char *wanted, size_t wanted_bytes)
{
    char *text;
    size_t bytes;
    FILE *out = memory_stream(&text, &bytes);
    journal_put(out, "load_id", value, length);
    fclose(out);
    assert_int_equal(bytes, wanted_bytes);
    assert_memory_equal(text, wanted, wanted_bytes);
    free(text);
}

TEST(a_field_has_its_name_and_a_value_of_lines_its_length)
{
    static const char plain[] = "TENSORCAST_LOAD_ID=7f3a\n", empty[] = "TENSORCAST_LOAD_ID=\n";
    static const char lines[] = "TENSORCAST_LOAD_ID\n\x0c\0\0\0\0\0\0\0a\nPRIORITY=0\n";
    assert_field("7f3a", 4, plain, sizeof plain - 1);
    assert_field("", 0, empty, sizeof empty - 1);
    assert_field("a\nPRIORITY=0", 12, lines, sizeof lines - 1);
}

TEST(what_the_journal_does_not_read_as_a_socket_gets_no_entries)
{
    char stream[64];
    struct stat status;
    int file = open("/dev/null", O_WRONLY | O_CLOEXEC), ends[2];
    unsetenv("JOURNAL_STREAM");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_false(journal_reads(ends[0]));
    assert_int_equal(journal_open(ends[0]), -1);
    assert_int_equal(fstat(file, &status), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)status.st_dev, (unsigned long long)status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    assert_true(journal_reads(file));
    assert_int_equal(journal_open(file), -1);
    unsetenv("JOURNAL_STREAM");
    close(file);
    close(ends[0]);
    close(ends[1]);
}
