/* A pull parser over the report; keys it does not know are skipped. */
#include "summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "pace_text.h"

struct summary {
    char artifact[TEXT_NAME_CHARS], executor[TEXT_NAME_CHARS], reason[TEXT_NAME_CHARS], memory[TEXT_NAME_CHARS];
    uint64_t view_bytes, read_bytes, copied_bytes, shared_bytes, n_tensors;
    double total_ms;
    char verified[TEXT_NAME_CHARS], verified_by[TEXT_NAME_CHARS], verified_reason[TEXT_NAME_CHARS];
    bool from_replica;
};

static bool key_is(const struct json_string *key, const char *name)
{
    return key->length == strlen(name) && memcmp(key->text, name, key->length) == 0;
}

static bool take_text(struct json *json, char out[TEXT_NAME_CHARS])
{
    struct json_string text;
    if (!json_take_string(json, &text))
        return false;
    text_escape(text.text, text.length, out);
    return true;
}

static bool take_bool(struct json *json, bool *value)
{
    *value = json_peek(json) == JSON_TRUE;
    return json_skip(json);
}

static bool take_double(struct json *json, double *value)
{
    char digits[64] = "";
    if (json_peek(json) != JSON_NUMBER)
        return json_fail(json, "expected a number");
    const char *from = json->at;
    if (!json_skip(json))
        return false;
    memcpy(digits, from, (size_t)(json->at - from) < sizeof digits ? (size_t)(json->at - from) : sizeof digits - 1);
    *value = strtod(digits, NULL);
    return true;
}

static bool count_items(struct json *json, uint64_t *count)
{
    if (!json_begin_array(json))
        return false;
    for (*count = 0; json_next_item(json); ++*count) {
        if (!json_skip(json))
            return false;
    }
    return json_ok(json);
}

static bool take_bytes(struct json *json, struct summary *summary)
{
    struct json_string key;
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        uint64_t *place = key_is(&key, "view")     ? &summary->view_bytes
                          : key_is(&key, "read")   ? &summary->read_bytes
                          : key_is(&key, "copied") ? &summary->copied_bytes
                          : key_is(&key, "shared") ? &summary->shared_bytes
                                                   : NULL;
        if (place ? !json_take_u64(json, place) : !json_skip(json))
            return false;
    }
    return json_ok(json);
}

static bool take_ms(struct json *json, struct summary *summary)
{
    struct json_string key;
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        if (key_is(&key, "total") ? !take_double(json, &summary->total_ms) : !json_skip(json))
            return false;
    }
    return json_ok(json);
}

static bool take_verified(struct json *json, struct summary *summary)
{
    struct json_string key;
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        char *place = key_is(&key, "status")   ? summary->verified
                      : key_is(&key, "by")     ? summary->verified_by
                      : key_is(&key, "reason") ? summary->verified_reason
                                               : NULL;
        if (place ? !take_text(json, place) : !json_skip(json))
            return false;
    }
    return json_ok(json);
}

static bool take_member(struct json *json, const struct json_string *key, struct summary *summary)
{
    if (key_is(key, "artifact"))
        return take_text(json, summary->artifact);
    if (key_is(key, "executor"))
        return take_text(json, summary->executor);
    if (key_is(key, "selection_reason"))
        return take_text(json, summary->reason);
    if (key_is(key, "memory"))
        return take_text(json, summary->memory);
    if (key_is(key, "from_replica"))
        return take_bool(json, &summary->from_replica);
    if (key_is(key, "bytes"))
        return take_bytes(json, summary);
    if (key_is(key, "ms"))
        return take_ms(json, summary);
    if (key_is(key, "verified"))
        return take_verified(json, summary);
    if (key_is(key, "tensors"))
        return count_items(json, &summary->n_tensors);
    return json_skip(json);
}

static void print(const struct summary *summary, FILE *out)
{
    char size[TEXT_SIZE_CHARS], read[TEXT_SIZE_CHARS], copied[TEXT_SIZE_CHARS], shared[TEXT_SIZE_CHARS], pace[PACE_CHARS];
    text_people_bytes(summary->view_bytes, size);
    fprintf(out, "%s: ", summary->artifact);
    if (summary->n_tensors)
        fprintf(out, "%" PRIu64 " tensor%s, ", summary->n_tensors, summary->n_tensors == 1 ? "" : "s");
    fprintf(out, "%s in %s", size, pace_text_duration(summary->total_ms / 1e3, pace));
    if (summary->from_replica)
        fprintf(out, ", resident already\n");
    else if (summary->total_ms > 0)
        fprintf(out, ", %s\n", pace_text_speed((double)summary->view_bytes / summary->total_ms * 1e3, pace));
    else
        fputc('\n', out);
    fprintf(out, "  executor  %s (%s)\n", summary->executor, summary->reason);
    fprintf(out, "  bytes     %s needed, %s read, %s copied", size, text_people_bytes(summary->read_bytes, read),
            text_people_bytes(summary->copied_bytes, copied));
    if (summary->shared_bytes)
        fprintf(out, ", %s shared with other loads", text_people_bytes(summary->shared_bytes, shared));
    fprintf(out, "\n  memory    %s\n", summary->memory);
    bool is_whole = strcmp(summary->verified, "verified") == 0;
    if (summary->verified_by[0]) /* where nothing vouches for the bytes there is nothing to say */
        fprintf(out, "  verified  %s%s%s%s%s\n", is_whole ? "" : summary->verified, is_whole ? "by " : " by ",
                summary->verified_by, summary->verified_reason[0] ? ": " : "", summary->verified_reason);
}

int summary_print(const char *report_json, FILE *out, struct error *error)
{
    struct json json;
    struct json_string key;
    struct summary summary = {0};
    struct arena arena;
    char problem[JSON_ERROR_CHARS];
    arena_init(&arena, 0);
    json_init(&json, report_json, strlen(report_json), &arena);
    if (json_begin_object(&json)) {
        while (json_next_key(&json, &key) && take_member(&json, &key, &summary))
            continue;
    }
    int status = json_end(&json) ? 0
                                 : fail(error, ERROR_INTERNAL, "BAD_REPORT", "the load's report is not understood: %s",
                                        json_error(&json, problem));
    arena_fini(&arena);
    if (status == 0)
        print(&summary, out);
    return status;
}
