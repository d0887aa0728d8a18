#include "activation_claim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"

uint64_t activation_claim_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void activation_claim_name(uint64_t unit, char name[ACTIVATION_CLAIM_NAME_CHARS])
{
    snprintf(name, ACTIVATION_CLAIM_NAME_CHARS, "unit_%08" PRIu64, unit);
}

bool activation_claim_parse_name(const char *name, uint64_t *unit)
{
    char same[ACTIVATION_CLAIM_NAME_CHARS];
    if (strncmp(name, "unit_", 5) != 0)
        return false;
    *unit = strtoull(name + 5, NULL, 10);
    activation_claim_name(*unit, same);
    return strcmp(same, name) == 0;
}

void activation_claim_parse(const char *text, size_t length, struct activation_claim *claim)
{
    struct arena arena = {0};
    struct json json;
    struct json_string key, owner = {0};
    *claim = (struct activation_claim){0};
    json_init(&json, text, length, &arena);
    if (json_begin_object(&json))
        while (json_next_key(&json, &key)) {
            if (json_string_is(&key, "owner"))
                json_take_string(&json, &owner);
            else if (json_string_is(&key, "until_ms"))
                json_take_u64(&json, &claim->until_ms);
            else if (json_string_is(&key, "done"))
                claim->is_done = json_peek(&json) == JSON_TRUE, json_skip(&json);
            else
                json_skip(&json);
        }
    snprintf(claim->owner, sizeof claim->owner, "%.*s", (int)owner.length, owner.length ? owner.text : "");
    arena_fini(&arena);
}

char *activation_claim_print(const char *owner, uint64_t lease_ms, bool is_done, size_t *length, struct error *error)
{
    uint64_t chance = 0;
    char mark[20];
    struct json_writer json = {0};
    if (getrandom(&chance, sizeof chance, 0) < 0)
        chance = (uint64_t)getpid();
    snprintf(mark, sizeof mark, "%016" PRIx64, chance);
    json_write_open(&json, '{');
    json_put_text(&json, "owner", owner);
    json_put_u64(&json, "until_ms", activation_claim_now_ms() + lease_ms);
    json_put_bool(&json, "done", is_done);
    json_put_text(&json, "mark", mark);
    json_write_close(&json, '}');
    *length = json.length;
    if (json.length < ACTIVATION_CLAIM_MAX_BYTES)
        return json.text;
    free(json.text);
    fail(error, ERROR_INVALID_ARGUMENT, "OWNER_TOO_LONG", "--owner is too long: a claim has at most %d bytes",
         ACTIVATION_CLAIM_MAX_BYTES - 1);
    return NULL;
}

int activation_claim_fail_nobody(uint64_t unit, struct error *error)
{
    return fail(error, ERROR_NOT_FOUND, "NOT_CLAIMED", "unit %" PRIu64 " was claimed by nobody", unit);
}

int activation_claim_fail_owner(const struct activation_claim *claim, uint64_t unit, struct error *error)
{
    char owner[TEXT_NAME_CHARS];
    return fail(error, ERROR_FAILED_PRECONDITION, "NOT_THE_OWNER",
                "unit %" PRIu64 " is %s's; who had it before has let the lease pass", unit,
                text_escape(claim->owner, strlen(claim->owner), owner));
}
