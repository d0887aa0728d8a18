#include "replica/budget_error.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { MAX_NAMED = 3, NAMED_CHARS = 96 };

struct named { /* the users who have most, most first */
    struct holders_user users[MAX_NAMED];
};

static void name_user(void *data, const struct holders_user *user)
{
    struct named *named = data;
    size_t at = MAX_NAMED;
    while (at > 0 && holders_sum(&named->users[at - 1]) < holders_sum(user))
        at--;
    if (at == MAX_NAMED)
        return;
    memmove(&named->users[at + 1], &named->users[at], (MAX_NAMED - 1 - at) * sizeof *user);
    named->users[at] = *user;
}

/* "user 1000 has 64.0 MiB (64 %), user 0 has 1.0 MiB (1 %)" */
static void describe_users(const struct budget_numbers *numbers, char *text, size_t room)
{
    struct named named = {0};
    char bytes[TEXT_SIZE_CHARS];
    size_t used = 0;
    holders_each(numbers->holders, name_user, &named);
    text[0] = '\0';
    for (size_t i = 0; i < MAX_NAMED && holders_sum(&named.users[i]) && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%suser %u has %s (%.0f %%)", i ? ", " : "; ",
                                 (unsigned)named.users[i].uid, text_people_bytes(holders_sum(&named.users[i]), bytes),
                                 100.0 * (double)holders_sum(&named.users[i]) / (double)numbers->budget_bytes);
}

/* A budget of which this user may have so many bytes, as the configuration has it: "1126MiB". */
static uint64_t wanted_mib(const struct budget_numbers *numbers, uint64_t needed_bytes)
{
    unsigned __int128 wanted = (unsigned __int128)needed_bytes * numbers->budget_bytes;
    return (uint64_t)((wanted / numbers->most_bytes) >> 20) + 1;
}

/* The end of other loads gives it no room. */
static int fail_for_good(const struct budget_numbers *numbers, uint64_t needed_bytes, struct error *error)
{
    char need[TEXT_SIZE_CHARS], budget[TEXT_SIZE_CHARS], most[TEXT_SIZE_CHARS], of_user[2 * TEXT_SIZE_CHARS + 64] = "";
    bool is_host = numbers->memory == REPLICA_MEMORY_HOST;
    const char *key = is_host ? "memory.host_budget" : "devices.memory_budget";
    if (numbers->most_bytes < numbers->budget_bytes)
        snprintf(of_user, sizeof of_user, ", of which one user may have %s (limits.kept_for_others)",
                 text_people_bytes(numbers->most_bytes, most));
    return fail(error, ERROR_RESOURCE_EXHAUSTED, is_host ? "HOST_BUDGET_EXCEEDED" : "DEVICE_BUDGET_EXCEEDED",
                "the view needs %llu bytes (%s) of %smemory and can never fit: %s is %s%s; raise it to at least %lluMiB, or "
                "load fewer tensors, or slices of them",
                (unsigned long long)needed_bytes, text_people_bytes(needed_bytes, need), is_host ? "" : "device ", key,
                text_people_bytes(numbers->budget_bytes, budget), of_user,
                (unsigned long long)wanted_mib(numbers, needed_bytes));
}

static int add_notes(const struct budget_numbers *numbers, uid_t uid, uint64_t needed_bytes, struct error *error)
{
    error_note(error, "uid", "%u", (unsigned)uid);
    error_note(error, "needed_bytes", "%llu", (unsigned long long)needed_bytes);
    return error_note(error, "available_bytes", "%llu", (unsigned long long)numbers->available_bytes);
}

int budget_error_fail(const struct budget_numbers *numbers, uid_t uid, uint64_t needed_bytes, struct error *error)
{
    char need[TEXT_SIZE_CHARS], have[TEXT_SIZE_CHARS], budget[TEXT_SIZE_CHARS], held[TEXT_SIZE_CHARS],
        loading[TEXT_SIZE_CHARS], kept[TEXT_SIZE_CHARS], size[TEXT_SIZE_CHARS], pinned[2 * TEXT_SIZE_CHARS] = "",
                                                                                           users[MAX_NAMED * NAMED_CHARS];
    bool is_host = numbers->memory == REPLICA_MEMORY_HOST;
    const char *budget_key = is_host ? "memory.host_budget" : "devices.memory_budget";
    text_people_bytes(needed_bytes, need);
    text_people_bytes(numbers->available_bytes, have);
    if (numbers->memory == REPLICA_MEMORY_OF_A_USER)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NOT_ENOUGH_MEMORY",
                    "the view needs %s of memory and %s are available; load fewer tensors, or slices of them", need, have);
    if (needed_bytes > numbers->most_bytes && numbers->most_bytes) {
        fail_for_good(numbers, needed_bytes, error);
        return add_notes(numbers, uid, needed_bytes, error);
    }
    describe_users(numbers, users, sizeof users);
    if (numbers->pinned_bytes)
        snprintf(pinned, sizeof pinned, " or pinned (%s pinned)", text_people_bytes(numbers->pinned_bytes, size));
    fail(error, ERROR_RESOURCE_EXHAUSTED, is_host ? "HOST_BUDGET_EXCEEDED" : "DEVICE_BUDGET_EXCEEDED",
         "the view needs %llu bytes (%s) of %smemory but %llu (%s) of %s %s are available%s: %s are held by leased "
         "replicas%s, %s by loads in flight, %s by clients that kept memory beyond their lease%s; end clients that hold "
         "memory, %sor raise %s",
         (unsigned long long)needed_bytes, need, is_host ? "" : "device ", (unsigned long long)numbers->available_bytes,
         have, budget_key, text_people_bytes(numbers->budget_bytes, budget),
         numbers->is_for_others ? " to one user, since limits.kept_for_others keeps the rest for others" : "",
         text_people_bytes(numbers->held_bytes, held), pinned, text_people_bytes(numbers->loading_bytes, loading),
         text_people_bytes(numbers->kept_bytes, kept), users, *pinned ? "unpin replicas, " : "", budget_key);
    return add_notes(numbers, uid, needed_bytes, error);
}
