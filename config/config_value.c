/* Types of values. Most are a number inside and share range, storage and messages; texts, paths and lists have functions of
 * their own. Every refusal is one sentence: what was expected, with the range, and what was there. */
#include "config/config_value.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <assert.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/url.h"

enum {
    NUMBER_CHARS = 64,
    PATH_BYTES = 4096, /* PATH_MAX, with its NUL */
    TEXT_BYTES = 256,  /* longer than any group name */
};

/* --- paths: one spelling each, so that comparing two is comparing strings. Links are followed when they are opened --- */

static_assert(CONFIG_SOCKET_PATH_MAX + 1 == sizeof(((struct sockaddr_un *)NULL)->sun_path), "what a socket address holds");

char *config_path_tidy(const char *path, struct arena *arena)
{
    char *tidy = arena_alloc(arena, strlen(path) + 2), *end = tidy;
    while (*path) {
        size_t n = strcspn(path, "/");
        if (n && !(n == 1 && path[0] == '.')) {
            *end++ = '/';
            memcpy(end, path, n);
            end += n;
        }
        path += n + (path[n] == '/');
    }
    if (end == tidy)
        *end++ = '/';
    *end = '\0';
    return tidy;
}

bool config_path_is_within(const char *inner, const char *outer)
{
    size_t n = strlen(outer);
    return strcmp(outer, "/") == 0 || (strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == '\0'));
}

bool config_path_is_credential(const char *path)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    return folder && folder[0] == '/' && config_path_is_within(path, folder);
}

bool config_path_has_parent(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/..")) != NULL; at += 3) {
        if (at[3] == '/' || at[3] == '\0')
            return true;
    }
    return false;
}

void config_path_derive_handoff(const char *socket_path, char out[CONFIG_DERIVED_CHARS])
{
    size_t length = strlen(socket_path);
    bool has_suffix = text_ends_with(socket_path, length, ".sock");
    snprintf(out, CONFIG_DERIVED_CHARS, "%.*s.handoff", (int)(has_suffix ? length - 5 : length), socket_path);
}

/* --- numbers --- */

static int read_integer(const char *text, uint64_t *number)
{
    *number = 0;
    if (!*text || (text[0] == '0' && text[1])) /* 010 is 8 to some readers of YAML and 10 to others */
        return -1;
    for (const char *at = text; *at; at++) {
        if (*at == '_' && at > text && isdigit((unsigned char)at[-1]) && at[1])
            continue;
        if (!isdigit((unsigned char)*at) || !checked_mul(*number, 10, number) ||
            !checked_add(*number, (uint64_t)(*at - '0'), number))
            return -1;
    }
    return 0;
}

/* 0660 or 0o660. Without a leading zero it is refused: 432 would be octal to us and decimal to YAML. */
static int read_mode(const char *text, uint64_t *number)
{
    const char *digits = strncmp(text, "0o", 2) == 0 ? text + 2 : text;
    size_t n = strspn(digits, "01234567");
    if (n == 0 || n > 4 || digits[n] || text[0] != '0')
        return -1;
    *number = strtoull(digits, NULL, 8);
    return 0;
}

static int read_name(const struct config_key *key, const char *text, uint64_t *number)
{
    size_t n_prefix = key->names_prefix ? strlen(key->names_prefix) : 0;
    if (n_prefix && strncasecmp(text, key->names_prefix, n_prefix) == 0)
        text += n_prefix;
    for (*number = 0; key->names[*number]; ++*number) {
        if (strcasecmp(text, key->names[*number]) == 0 || (key->aliases && strcasecmp(text, key->aliases[*number]) == 0))
            return 0;
    }
    return -1;
}

static bool is_in_range(const struct config_key *key, uint64_t number)
{
    return number >= key->min && number <= key->max;
}

static int read_number(const struct config_key *key, const char *text, bool is_plain, uint64_t *number)
{
    switch (key->type) {
    case CONFIG_BOOL:
        *number = strcasecmp(text, "true") == 0;
        return is_plain && (*number || strcasecmp(text, "false") == 0) ? 0 : -1;
    case CONFIG_ENUM:
        return read_name(key, text, number);
    case CONFIG_INTEGER:
        return is_plain && read_integer(text, number) == 0 && is_in_range(key, *number) ? 0 : -1;
    case CONFIG_DURATION:
        return text_parse_duration_ms(text, number) == 0 && is_in_range(key, *number) ? 0 : -1;
    case CONFIG_MODE:
        return read_mode(text, number) == 0 && is_in_range(key, *number) ? 0 : -1;
    case CONFIG_SIZE_OR_AUTO:
        *number = 0;
        if (strcasecmp(text, "auto") == 0)
            return 0;
        __attribute__((fallthrough));
    default: /* CONFIG_SIZE */
        return text_parse_bytes(text, number) == 0 && is_in_range(key, *number) ? 0 : -1;
    }
}

static const char *show_number(const struct config_key *key, uint64_t number, char out[NUMBER_CHARS])
{
    switch (key->type) {
    case CONFIG_BOOL:
        return number ? "true" : "false";
    case CONFIG_ENUM:
        return key->names[number];
    case CONFIG_DURATION:
        return text_format_duration_ms(number, out);
    case CONFIG_MODE:
        snprintf(out, NUMBER_CHARS, "\"%04llo\"", (unsigned long long)number);
        return out;
    case CONFIG_SIZE:
        return text_format_bytes(number, out);
    case CONFIG_SIZE_OR_AUTO:
        return number ? text_format_bytes(number, out) : "auto";
    default: /* CONFIG_INTEGER, and the limits of CONFIG_REAL */
        snprintf(out, NUMBER_CHARS, "%llu", (unsigned long long)number);
        return out;
    }
}

/* A field may be a bool, an enum or a uint64_t. */
static void store_number(void *field, size_t size, uint64_t number)
{
    unsigned small = (unsigned)number;
    bool truth = number != 0;
    memcpy(field, size == sizeof truth ? (void *)&truth : size == sizeof small ? (void *)&small : (void *)&number, size);
}

static uint64_t load_number(const void *field, size_t size)
{
    unsigned small;
    uint64_t number;
    if (size == sizeof(bool))
        return *(const bool *)field;
    memcpy(size == sizeof small ? (void *)&small : (void *)&number, field, size);
    return size == sizeof small ? small : number;
}

/* Digits, perhaps a point and more digits; within the key's range. */
static int read_real(const struct config_key *key, const char *text, bool is_plain, double *value)
{
    size_t whole = strspn(text, "0123456789");
    size_t fraction = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
    size_t length = whole + (fraction ? fraction + 1 : 0);
    if (!is_plain || whole == 0 || text[length])
        return -1;
    *value = strtod(text, NULL);
    return *value >= (double)key->min && *value <= (double)key->max ? 0 : -1;
}

/* The fewest decimals that read back to the same value. */
static const char *show_real(double value, char out[NUMBER_CHARS])
{
    for (int decimals = 0; decimals <= 40; decimals++) {
        snprintf(out, NUMBER_CHARS, "%.*f", decimals, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return out;
}

static int read_text(const struct config_key *key, const char *text, struct arena *arena, const char **value)
{
    static const size_t rooms[] = {[CONFIG_TEXT] = TEXT_BYTES,
                                   [CONFIG_PATH] = PATH_BYTES,
                                   [CONFIG_ROOTS] = PATH_BYTES,
                                   [CONFIG_PREFIXES] = PATH_BYTES,
                                   [CONFIG_SOCKET_PATH] = CONFIG_SOCKET_PATH_MAX + 1};
    bool is_path = schema_is_path(key);
    if (!*text) {
        *value = "";
        return key->may_be_empty ? 0 : -1;
    }
    if (is_path && text[0] != '/')
        return -1;
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7F) /* not of one line */
            return -1;
    *value = is_path ? config_path_tidy(text, arena) : arena_text(arena, text, strlen(text));
    return strlen(*value) < rooms[key->type] ? 0 : -1;
}

static struct config_list load_list(const struct config_key *key, const struct config *config)
{
    struct config_list list;
    memcpy(&list, (const char *)config + key->offset, sizeof list);
    return list;
}

static void store_list(const struct config_key *key, struct config *config, struct config_list list)
{
    memcpy((char *)config + key->offset, &list, sizeof list);
}

void config_value_clear_list(const struct config_key *key, struct config *config)
{
    store_list(key, config, (struct config_list){0});
}

/* Paths that hold each other say the same twice, or something else than was meant. */
static int check_overlap(struct config_list roots, const char *path, const char *shown,
                         char complaint[CONFIG_COMPLAINT_CHARS])
{
    for (size_t i = 0; i < roots.n_items; i++) {
        bool is_inside = config_path_is_within(path, roots.items[i]);
        if (!is_inside && !config_path_is_within(roots.items[i], path))
            continue;
        snprintf(complaint, CONFIG_COMPLAINT_CHARS, "%s and %s overlap; keep the outer one", shown,
                 text_show(roots.items[i]));
        return -1;
    }
    return 0;
}

static bool is_good_item(const struct config_key *key, const char *item)
{
    if (key->type == CONFIG_ROOTS)
        return !config_path_has_parent(item);
    const char *colon = strstr(item, "://");
    bool is_web = strncasecmp(item, "https:", 6) == 0 || strncasecmp(item, "http:", 5) == 0;
    struct url url;
    struct error ignored; /* the complaint says what is expected */
    return colon && colon > item && !strchr(item, ' ') && (!is_web || !colon[3] || url_parse(item, &url, &ignored) == 0);
}

static int add_item(const struct config_key *key, const char *text, struct arena *arena, struct config *config,
                    char complaint[CONFIG_COMPLAINT_CHARS])
{
    struct config_list list = load_list(key, config);
    const char *item;
    char shown[TEXT_NAME_CHARS];
    if (key->type == CONFIG_PREFIXES)
        redact(text, shown, sizeof shown);
    else
        text_escape(text, strlen(text), shown);
    if (read_text(key, text, arena, &item) < 0 || !is_good_item(key, item)) {
        snprintf(complaint, CONFIG_COMPLAINT_CHARS, "expected %s, got \"%s\"",
                 key->type == CONFIG_ROOTS ? "an absolute path without \"..\""
                                           : "the beginning of a reference, such as gs://models",
                 shown);
        return -1;
    }
    if (key->type == CONFIG_ROOTS && check_overlap(list, item, shown, complaint) < 0)
        return -1;
    if (list.n_items == CONFIG_MAX_ITEMS) {
        snprintf(complaint, CONFIG_COMPLAINT_CHARS, "at most %d are allowed", CONFIG_MAX_ITEMS);
        return -1;
    }
    const char **items = arena_array(arena, list.n_items + 1, sizeof *items);
    if (list.n_items)
        memcpy(items, list.items, list.n_items * sizeof *items);
    items[list.n_items++] = item;
    list.items = items;
    store_list(key, config, list);
    return 0;
}

int config_value_add_root(const struct config_key *key, const char *path, struct arena *arena, struct config *config,
                          char complaint[CONFIG_COMPLAINT_CHARS])
{
    const char *root = config_path_tidy(path, arena);
    struct config_list old = load_list(key, config);
    config_value_clear_list(key, config);
    for (size_t i = 0; i < old.n_items; i++) {
        if (config_path_is_within(root, old.items[i])) {
            store_list(key, config, old);
            return 0;
        }
        if (!config_path_is_within(old.items[i], root) && add_item(key, old.items[i], arena, config, complaint) < 0)
            return -1;
    }
    return add_item(key, root, arena, config, complaint);
}

static const struct {
    const char *noun, *example;
    bool has_range;
} kinds[] = {
    [CONFIG_BOOL] = {"true or false", NULL, false},
    [CONFIG_INTEGER] = {"a whole number", NULL, true},
    [CONFIG_REAL] = {"a number", "1.5", true},
    [CONFIG_SIZE] = {"a size", "64MiB", true},
    [CONFIG_SIZE_OR_AUTO] = {"auto or a size", "16GiB", true},
    [CONFIG_DURATION] = {"a duration with its unit", "90s", true},
    [CONFIG_MODE] = {"octal permissions with a leading zero, at most \"0777\"", "\"0660\"", false},
    [CONFIG_ENUM] = {"one of", NULL, false},
    [CONFIG_TEXT] = {"a text of one line", NULL, false},
    [CONFIG_PATH] = {"an absolute path", NULL, false},
    [CONFIG_SOCKET_PATH] = {"an absolute path of at most 107 bytes", NULL, false},
    [CONFIG_ROOTS] = {"a list of absolute paths", "[/models]", false},
    [CONFIG_PREWARMS] = {"a list of artifacts with options",
                         "[{artifact: gs://models/llama, tp_size: 4, tp_rank: 0, pin: true}]", false},
    [CONFIG_PREFIXES] = {"a list of beginnings of references", "[gs://models, hf://my-org]", false},
};

const char *config_value_expected(const struct config_key *key, char out[CONFIG_EXPECTED_CHARS])
{
    char least[NUMBER_CHARS], most[NUMBER_CHARS];
    size_t used = (size_t)snprintf(out, CONFIG_EXPECTED_CHARS, "%s", kinds[key->type].noun);
    for (size_t i = 0; key->type == CONFIG_ENUM && key->names[i]; i++)
        used += (size_t)snprintf(out + used, CONFIG_EXPECTED_CHARS - used, "%s%s", i ? ", " : " ", key->names[i]);
    if (kinds[key->type].has_range)
        used += (size_t)snprintf(out + used, CONFIG_EXPECTED_CHARS - used, " from %s to %s",
                                 key->min ? show_number(key, key->min, least) : "0", show_number(key, key->max, most));
    if (kinds[key->type].example)
        used += (size_t)snprintf(out + used, CONFIG_EXPECTED_CHARS - used, ", such as %s", kinds[key->type].example);
    if (key->may_be_empty)
        snprintf(out + used, CONFIG_EXPECTED_CHARS - used, ", or \"\"");
    return out;
}

static int parse_field(const struct config_key *key, const char *text, bool is_plain, struct arena *arena, void *field)
{
    uint64_t number;
    double real;
    const char *string;
    switch (key->type) {
    case CONFIG_REAL:
        if (read_real(key, text, is_plain, &real) < 0)
            return -1;
        memcpy(field, &real, sizeof real);
        return 0;
    case CONFIG_TEXT:
    case CONFIG_PATH:
    case CONFIG_SOCKET_PATH:
        if (read_text(key, text, arena, &string) < 0)
            return -1;
        memcpy(field, &string, sizeof string);
        return 0;
    default:
        if (read_number(key, text, is_plain, &number) < 0)
            return -1;
        store_number(field, key->size, number);
        return 0;
    }
}

static void complain_of_value(const struct config_key *key, const char *text, bool is_plain,
                              char complaint[CONFIG_COMPLAINT_CHARS])
{
    char expected[CONFIG_EXPECTED_CHARS], length[40] = "";
    const char *nearest = NULL;
    size_t n_names = 0;
    while (key->names && key->names[n_names])
        n_names++;
    if (n_names)
        nearest = text_nearest(text, key->names, n_names);
    if (strlen(text) > CONFIG_SOCKET_PATH_MAX)
        snprintf(length, sizeof length, " of %zu bytes", strlen(text));
    snprintf(complaint, CONFIG_COMPLAINT_CHARS, "expected %s, got %s\"%s\"%s%s%s%s", config_value_expected(key, expected),
             is_plain ? "" : "the text ", text_show(text), length, nearest ? "; did you mean " : "", nearest ? nearest : "",
             nearest ? "?" : "");
    if (is_plain && !*text)
        snprintf(complaint, CONFIG_COMPLAINT_CHARS, "expected %s, got nothing", expected);
}

int config_value_parse(const struct config_key *key, const char *text, bool is_plain, struct arena *arena,
                       struct config *config, char complaint[CONFIG_COMPLAINT_CHARS])
{
    if (schema_is_list(key))
        return add_item(key, text, arena, config, complaint);
    if (parse_field(key, text, is_plain, arena, (char *)config + key->offset) == 0)
        return 0;
    complain_of_value(key, text, is_plain, complaint);
    return -1;
}

void config_value_print_text(const char *text, FILE *out)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    size_t length = strlen(text);
    if (text[0] == '/' && strspn(text, safe) == length) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (size_t at = 0; at < length;) {
        char piece[TEXT_ESCAPE_CHARS];
        fputs(text[at] == '"' ? "\\" : "", out);
        at += text_escape_char(text + at, length - at, piece);
        fputs(piece, out);
    }
    fputc('"', out);
}

void config_value_print(const struct config_key *key, const struct config *config, FILE *out)
{
    const char *field = (const char *)config + key->offset, *text;
    struct config_list list;
    char shown[NUMBER_CHARS];
    double real;
    switch (key->type) {
    case CONFIG_REAL:
        memcpy(&real, field, sizeof real);
        fputs(show_real(real, shown), out);
        break;
    case CONFIG_TEXT:
    case CONFIG_PATH:
    case CONFIG_SOCKET_PATH:
        memcpy(&text, field, sizeof text);
        config_value_print_text(text, out);
        break;
    case CONFIG_ROOTS:
    case CONFIG_PREFIXES:
    case CONFIG_PREWARMS:
        list = load_list(key, config);
        fputc('[', out);
        for (size_t i = 0; i < list.n_items; i++) {
            fputs(i ? ", " : "", out);
            if (key->type == CONFIG_PREWARMS) /* is YAML already */
                fputs(list.items[i], out);
            else
                config_value_print_text(list.items[i], out);
        }
        fputc(']', out);
        break;
    default:
        fputs(show_number(key, load_number(field, key->size), shown), out);
    }
}

char *config_value_text(const struct config_key *key, const struct config *config)
{
    char *text;
    size_t length;
    FILE *out = memory_stream(&text, &length);
    config_value_print(key, config, out);
    fclose(out);
    return text;
}

bool config_value_is_equal(const struct config_key *key, const struct config *a, const struct config *b)
{
    char *one = config_value_text(key, a), *other = config_value_text(key, b);
    bool is_equal = strcmp(one, other) == 0;
    free(one);
    free(other);
    return is_equal;
}
