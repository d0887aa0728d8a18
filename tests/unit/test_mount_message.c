/* Messages between the daemon and the processes of FUSE mounts: what is none is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/disk/mount_message.h"

#include <cmocka.h>
#undef fail

static void a_request_of_another_size_or_kind_is_refused(void **state)
{
    struct mount_request request = {.op = MOUNT_OPS - 1};
    (void)state;
    assert_int_equal(mount_message_check_request(&request, sizeof request), 0);
    assert_int_equal(mount_message_check_request(&request, sizeof request - 1), -1);
    assert_int_equal(mount_message_check_request(&request, 0), -1);
    request.op = MOUNT_OPS;
    assert_int_equal(mount_message_check_request(&request, sizeof request), -1);
}

static void a_read_stays_within_its_slot_and_texts_within_the_memory(void **state)
{
    struct mount_request read = {.op = MOUNT_READ, .slot = MOUNT_SLOTS - 1, .bytes = MOUNT_SLOT_BYTES};
    struct mount_request open = {.op = MOUNT_OPEN, .text_bytes = MOUNT_MEMORY_BYTES};
    struct mount_request glance = {.op = MOUNT_GLANCE, .bytes = MOUNT_SLOT_BYTES};
    struct mount_request into = {.op = MOUNT_READ_INTO, .bytes = MOUNT_MAX_PLACE_BYTES};
    assert_int_equal(mount_message_check_request(&into, sizeof into), 0);
    into.bytes++;
    assert_int_equal(mount_message_check_request(&into, sizeof into), -1);
    into = (struct mount_request){.op = MOUNT_READ_INTO, .bytes = 1, .place = UINT64_MAX};
    assert_int_equal(mount_message_check_request(&into, sizeof into), -1);
    (void)state;
    assert_int_equal(mount_message_check_request(&read, sizeof read), 0);
    read.bytes++;
    assert_int_equal(mount_message_check_request(&read, sizeof read), -1);
    read.bytes--;
    read.slot++;
    assert_int_equal(mount_message_check_request(&read, sizeof read), -1);
    assert_int_equal(mount_message_check_request(&open, sizeof open), 0);
    open.text_bytes++;
    assert_int_equal(mount_message_check_request(&open, sizeof open), -1);
    struct mount_request resident = {.op = MOUNT_RESIDENT, .text_bytes = SOURCE_MAX_EXTENTS * sizeof(struct source_extent)};
    assert_int_equal(mount_message_check_request(&resident, sizeof resident), 0);
    resident.text_bytes += sizeof(struct source_extent);
    assert_int_equal(mount_message_check_request(&resident, sizeof resident), -1);
    resident.text_bytes = sizeof(struct source_extent) - 1;
    assert_int_equal(mount_message_check_request(&resident, sizeof resident), -1);
    assert_int_equal(mount_message_check_request(&glance, sizeof glance), 0);
    glance.bytes++;
    assert_int_equal(mount_message_check_request(&glance, sizeof glance), -1);
}

static struct mount_reply failed(void)
{
    struct mount_reply reply = {.has_failed = 1};
    fail(&reply.error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "it was changed");
    return reply;
}

static void a_reply_is_short_when_it_is_good_and_whole_when_it_has_failed(void **state)
{
    struct mount_reply good = {.value = 7}, bad = failed();
    struct error error;
    (void)state;
    memset(&good.error, 1, sizeof good.error);
    assert_int_equal(mount_message_check_reply(&good, MOUNT_REPLY_BYTES), 0);
    assert_int_equal(good.error.code, ERROR_OK);
    assert_int_equal(mount_message_check_reply(&good, MOUNT_REPLY_BYTES - 1), -1);
    assert_int_equal(mount_message_check_reply(&bad, sizeof bad), 0);
    bad.error.kind = ERROR_KIND_ARENA_FULL; /* what kind it is, the reason says */
    assert_int_equal(mount_message_get_error(&bad, &error), -1);
    assert_int_equal(error.kind, ERROR_KIND_SOURCE_CHANGED);
    assert_string_equal(error.message, "it was changed");
    assert_int_equal(mount_message_check_reply(&bad, MOUNT_REPLY_BYTES), -1);
}

static void values_that_do_not_exist_are_refused(void **state)
{
    struct mount_reply reply = failed();
    (void)state;
    reply.error.code = ERROR_OK;
    assert_int_equal(mount_message_check_reply(&reply, sizeof reply), -1);
    reply = failed();
    reply.error.code = ERROR_DATA_LOSS + 1;
    assert_int_equal(mount_message_check_reply(&reply, sizeof reply), -1);
    reply = failed();
    memset(reply.error.message, 'x', sizeof reply.error.message);
    assert_int_equal(mount_message_check_reply(&reply, sizeof reply), -1);
    reply = (struct mount_reply){.file.changes_by = CHANGES_RACY + 1};
    assert_int_equal(mount_message_check_reply(&reply, MOUNT_REPLY_BYTES), -1);
    reply = (struct mount_reply){.file.changes_reason = 1000};
    assert_int_equal(mount_message_check_reply(&reply, MOUNT_REPLY_BYTES), -1);
    reply = (struct mount_reply){0};
    memset(reply.file.caps.filesystem_type, 'x', sizeof reply.file.caps.filesystem_type);
    assert_int_equal(mount_message_check_reply(&reply, MOUNT_REPLY_BYTES), -1);
}

static void notes_of_an_error_always_have_an_end(void **state)
{
    struct mount_reply reply = failed();
    const char *key = NULL, *value;
    (void)state;
    memset(reply.error.notes, 'x', sizeof reply.error.notes);
    assert_int_equal(mount_message_check_reply(&reply, sizeof reply), 0);
    while ((key = error_next_note(&reply.error, key, &value)) != NULL)
        assert_true(strlen(value) < sizeof reply.error.notes);
}

static void texts_are_split_at_their_ends(void **state)
{
    const char *texts[MOUNT_MAX_TEXTS];
    (void)state;
    assert_int_equal(mount_message_split("/a\0/b\0", 6, texts), 2);
    assert_string_equal(texts[0], "/a");
    assert_string_equal(texts[1], "/b");
    assert_int_equal(mount_message_split("\0", 1, texts), 1);
    assert_int_equal(mount_message_split("/a", 2, texts), 0);
    assert_int_equal(mount_message_split("", 0, texts), 0);
}

static void as_many_texts_as_there_may_be_are_taken_and_one_more_is_not(void **state)
{
    static const char *texts[MOUNT_MAX_TEXTS];
    char bytes[MOUNT_MAX_TEXTS + 1] = {0};
    (void)state;
    assert_int_equal(mount_message_split(bytes, MOUNT_MAX_TEXTS, texts), MOUNT_MAX_TEXTS);
    assert_int_equal(mount_message_split(bytes, MOUNT_MAX_TEXTS + 1, texts), 0);
}

static int add(const char *bytes, size_t n_bytes, const char *before)
{
    char **names = NULL;
    size_t n_names = 0, room = 0;
    int failed_at_first = mount_message_add_names(before, strlen(before) + 1, &names, &n_names, &room);
    assert_int_equal(failed_at_first, 0);
    int result = mount_message_add_names(bytes, n_bytes, &names, &n_names, &room);
    while (n_names > 0)
        free(names[--n_names]);
    free(names);
    return result;
}

static void names_come_in_order_and_are_names(void **state)
{
    (void)state;
    assert_int_equal(add("b\0c\0", 4, "a"), 0);
    assert_int_equal(add("", 0, "a"), 0);
    assert_int_equal(add("a\0", 2, "b"), -1);
    assert_int_equal(add("c\0b\0", 4, "a"), -1);
    assert_int_equal(add("b/c\0", 4, "a"), -1);
    assert_int_equal(add("\0", 1, "a"), -1);
    assert_int_equal(add("b", 1, "a"), -1);
}

static void a_name_has_1020_bytes_at_most(void **state)
{
    char name[1022];
    (void)state;
    memset(name, 'b', sizeof name);
    name[1020] = name[1021] = '\0';
    assert_int_equal(add(name, 1021, "a"), 0);
    name[1020] = 'b';
    assert_int_equal(add(name, 1022, "a"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_of_another_size_or_kind_is_refused),
        cmocka_unit_test(a_read_stays_within_its_slot_and_texts_within_the_memory),
        cmocka_unit_test(a_reply_is_short_when_it_is_good_and_whole_when_it_has_failed),
        cmocka_unit_test(values_that_do_not_exist_are_refused),
        cmocka_unit_test(notes_of_an_error_always_have_an_end),
        cmocka_unit_test(texts_are_split_at_their_ends),
        cmocka_unit_test(as_many_texts_as_there_may_be_are_taken_and_one_more_is_not),
        cmocka_unit_test(names_come_in_order_and_are_names),
        cmocka_unit_test(a_name_has_1020_bytes_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
