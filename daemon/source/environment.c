#include "source/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

const char *environment_get(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *environment_text(const char *names, struct arena *arena)
{
    char *list = memory_copy_text(names), *rest = list, *value = NULL;
    for (char *name; !value && (name = strsep(&rest, " ")) != NULL;) {
        char *tail = strchr(name, '/');
        if (tail)
            *tail++ = '\0';
        const char *set = environment_get(name);
        value = set ? memory_print("%s%s%s", set, tail ? "/" : "", tail ? tail : "") : NULL;
    }
    const char *text = value ? arena_text(arena, value, strlen(value)) : "";
    free(value);
    free(list);
    return text;
}

bool environment_is_true(const char *names)
{
    static const char *const words[] = {"1", "true", "on", "yes"};
    char *list = memory_copy_text(names), *rest = list;
    bool is_true = false;
    for (char *name; (name = strsep(&rest, " ")) != NULL;) {
        const char *value = getenv(name);
        for (size_t i = 0; value && i < sizeof words / sizeof words[0]; i++)
            is_true = is_true || strcasecmp(value, words[i]) == 0;
    }
    free(list);
    return is_true;
}

int environment_number(const char *name, uint64_t max, uint64_t *value, struct error *error)
{
    const char *text = environment_get(name);
    uint64_t parsed;
    if (!text)
        return 0;
    if (text_parse_bytes(text, &parsed) < 0 || parsed == 0 || parsed > max)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_ENVIRONMENT", "%s is \"%s\"; expected a number from 1 to %llu", name,
                    text_show(text), (unsigned long long)max);
    *value = parsed;
    return 0;
}

static bool is_of_daemon;

void environment_is_of_daemon(void)
{
    is_of_daemon = true;
}

const char *environment_owner(char text[ENVIRONMENT_OWNER_CHARS])
{
    if (is_of_daemon)
        snprintf(text, ENVIRONMENT_OWNER_CHARS, "the daemon (pid %d, user %u)", (int)getpid(), (unsigned)geteuid());
    else
        snprintf(text, ENVIRONMENT_OWNER_CHARS, "this process");
    return text;
}

const char *environment_remedy(void)
{
    return is_of_daemon ? "in its environment and restart it, or use --standalone" : "in its environment";
}

int environment_note(struct error *error, const char *names)
{
    char *list = memory_copy_text(names), *rest = list, unset[256] = "";
    for (char *name; is_of_daemon && (name = strsep(&rest, " ")) != NULL;) {
        size_t length = strlen(unset);
        if (!environment_get(name))
            snprintf(unset + length, sizeof unset - length, "%s%s", length ? " " : "", name);
    }
    free(list);
    return *unset ? error_note(error, "unset", "%s", unset) : -1;
}

bool environment_home_is_foreign(void)
{
    const char *home = environment_get("HOME");
    struct stat status;
    return geteuid() == 0 && home && stat(home, &status) == 0 && status.st_uid != 0;
}
