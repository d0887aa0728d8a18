/* libyaml's events, filtered. See config_yaml.h for what is refused.
 *
 * libyaml reports a broken file by the place where it gave up, or, for bytes that are no text, by an offset; both become a
 * line and a column here. Tabs get a sentence of their own, because libyaml's does not mention them. */
#include "config/config_yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

int config_yaml_fail(const struct config_yaml *yaml, struct config_yaml_place place, struct error *error, const char *reason,
                     const char *format, ...)
{
    char message[ERROR_MESSAGE_CHARS];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (place.line == 0)
        return fail(error, ERROR_INVALID_ARGUMENT, reason, "%s: %s", yaml->shown_path, message);
    return fail(error, ERROR_INVALID_ARGUMENT, reason, "%s:%zu:%zu: %s", yaml->shown_path, place.line, place.column,
                message);
}

static struct config_yaml_place place_of(yaml_mark_t mark)
{
    return (struct config_yaml_place){mark.line + 1, mark.column + 1};
}

static struct config_yaml_place place_of_offset(const struct config_yaml *yaml, size_t offset)
{
    struct config_yaml_place place = {1, 1};
    for (size_t i = 0; i < offset && i < yaml->length; i++) {
        place.column = yaml->text[i] == '\n' ? 1 : place.column + 1;
        place.line += yaml->text[i] == '\n';
    }
    return place;
}

static bool is_indented_with_tab(const struct config_yaml *yaml, size_t line)
{
    size_t at = 0;
    for (; line > 1 && at < yaml->length; at++)
        line -= yaml->text[at] == '\n';
    while (at < yaml->length && yaml->text[at] == ' ')
        at++;
    return at < yaml->length && yaml->text[at] == '\t';
}

static int fail_syntax(const struct config_yaml *yaml, struct error *error)
{
    const yaml_parser_t *parser = &yaml->parser;
    const char *problem = parser->problem ? parser->problem : "it cannot be read";
    if (parser->error == YAML_READER_ERROR)
        return config_yaml_fail(yaml, place_of_offset(yaml, parser->problem_offset), error, "CONFIG_NOT_YAML",
                                "this is no YAML: %s", problem);
    struct config_yaml_place place = place_of(parser->problem_mark);
    if (is_indented_with_tab(yaml, place.line))
        return config_yaml_fail(yaml, place, error, "CONFIG_NOT_YAML", "a tab cannot indent YAML; use spaces");
    if (!parser->context)
        return config_yaml_fail(yaml, place, error, "CONFIG_NOT_YAML", "this is no YAML: %s", problem);
    return config_yaml_fail(yaml, place, error, "CONFIG_NOT_YAML", "this is no YAML: %s %s that began on line %zu", problem,
                            parser->context, parser->context_mark.line + 1);
}

static int next_event(struct config_yaml *yaml, struct error *error)
{
    yaml_event_delete(&yaml->event);
    if (yaml_parser_parse(&yaml->parser, &yaml->event))
        return 0;
    memset(&yaml->event, 0, sizeof yaml->event);
    return fail_syntax(yaml, error);
}

static int fail_here(const struct config_yaml *yaml, struct error *error, const char *message)
{
    return config_yaml_fail(yaml, place_of(yaml->event.start_mark), error, "CONFIG_NOT_YAML", "%s", message);
}

static const char no_anchors[] = "anchors (&name) and aliases (*name) are not allowed; write the value out";

static int refuse_anchor_and_tag(const struct config_yaml *yaml, const yaml_char_t *anchor, const yaml_char_t *tag,
                                 struct error *error)
{
    if (anchor)
        return fail_here(yaml, error, no_anchors);
    if (tag)
        return fail_here(yaml, error, "tags (!name) are not allowed; each key has its type");
    return 0;
}

int config_yaml_next(struct config_yaml *yaml, struct config_yaml_item *item, struct error *error)
{
    if (next_event(yaml, error) < 0)
        return -1;
    *item = (struct config_yaml_item){.place = place_of(yaml->event.start_mark)};
    switch (yaml->event.type) {
    case YAML_SCALAR_EVENT:
        item->kind = CONFIG_YAML_SCALAR;
        item->text = (const char *)yaml->event.data.scalar.value;
        item->is_plain = yaml->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        if (strlen(item->text) != yaml->event.data.scalar.length)
            return fail_here(yaml, error, "a value may not hold a NUL character");
        return refuse_anchor_and_tag(yaml, yaml->event.data.scalar.anchor, yaml->event.data.scalar.tag, error);
    case YAML_MAPPING_START_EVENT:
        item->kind = CONFIG_YAML_OPEN_MAP;
        return refuse_anchor_and_tag(yaml, yaml->event.data.mapping_start.anchor, yaml->event.data.mapping_start.tag, error);
    case YAML_SEQUENCE_START_EVENT:
        item->kind = CONFIG_YAML_OPEN_LIST;
        return refuse_anchor_and_tag(yaml, yaml->event.data.sequence_start.anchor, yaml->event.data.sequence_start.tag,
                                     error);
    case YAML_MAPPING_END_EVENT:
        item->kind = CONFIG_YAML_CLOSE_MAP;
        return 0;
    case YAML_SEQUENCE_END_EVENT:
        item->kind = CONFIG_YAML_CLOSE_LIST;
        return 0;
    default: /* an alias: the only kind left inside a mapping */
        return fail_here(yaml, error, no_anchors);
    }
}

static int check_text(const struct config_yaml *yaml, struct error *error)
{
    if (yaml->length > CONFIG_YAML_MAX_BYTES)
        return config_yaml_fail(yaml, (struct config_yaml_place){0}, error, "CONFIG_TOO_LARGE",
                                "a configuration has at most 1 MiB, this file has more");
    size_t n_good = 0, n;
    while (n_good < yaml->length && (n = utf8_sequence(yaml->text + n_good, yaml->length - n_good)) != 0)
        n_good += n;
    if (n_good < yaml->length)
        return config_yaml_fail(yaml, place_of_offset(yaml, n_good), error, "CONFIG_NOT_YAML", "byte 0x%02x is not UTF-8",
                                (unsigned char)yaml->text[n_good]);
    return 0;
}

/* Reads up to the first item of the first document. */
static int read_top(struct config_yaml *yaml, bool *is_empty, struct error *error)
{
    struct config_yaml_item item;
    if (next_event(yaml, error) < 0 || next_event(yaml, error) < 0) /* NOLINT(misc-redundant-expression): two events */
        return -1; /* the stream's start, then a document's or the stream's end */
    *is_empty = yaml->event.type == YAML_STREAM_END_EVENT;
    if (*is_empty)
        return 0;
    if (config_yaml_next(yaml, &item, error) < 0)
        return -1;
    *is_empty = item.kind == CONFIG_YAML_SCALAR && item.is_plain && !*item.text;
    if (*is_empty)
        return config_yaml_end(yaml, error);
    if (item.kind != CONFIG_YAML_OPEN_MAP)
        return fail_here(yaml, error, "a configuration is a mapping of sections, such as \"server:\" with keys below it");
    return 0;
}

int config_yaml_open(struct config_yaml *yaml, const char *text, size_t length, const char *path, bool *is_empty,
                     struct error *error)
{
    memset(yaml, 0, sizeof *yaml);
    yaml->text = text;
    yaml->length = length;
    text_escape(path, strlen(path), yaml->shown_path);
    if (check_text(yaml, error) < 0)
        return -1;
    if (!yaml_parser_initialize(&yaml->parser))
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory to read the configuration");
    yaml_parser_set_encoding(&yaml->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&yaml->parser, (const unsigned char *)text, length);
    if (read_top(yaml, is_empty, error) == 0)
        return 0;
    config_yaml_close(yaml);
    return -1;
}

int config_yaml_end(struct config_yaml *yaml, struct error *error)
{
    if (next_event(yaml, error) < 0 || next_event(yaml, error) < 0) /* NOLINT(misc-redundant-expression): two events */
        return -1;                                                  /* the document's end, then the stream's */
    if (yaml->event.type != YAML_STREAM_END_EVENT)
        return fail_here(yaml, error, "a second document begins here; a configuration is one document");
    return 0;
}

void config_yaml_close(struct config_yaml *yaml)
{
    yaml_event_delete(&yaml->event);
    yaml_parser_delete(&yaml->parser);
}

const char *config_yaml_path(const struct config_yaml *yaml, const char *text, struct arena *arena)
{
    static const char variable[] = "$CREDENTIALS_DIRECTORY";
    bool is_home = strncmp(text, "~/", 2) == 0, is_credential = strncmp(text, variable, sizeof variable - 1) == 0;
    const char *folder = is_home ? yaml->home : is_credential ? getenv(variable + 1) : NULL;
    const char *rest = text + (is_home ? 1 : sizeof variable - 1);
    if (!folder || *rest != '/')
        return text;
    char *path = arena_alloc(arena, strlen(folder) + strlen(rest) + 1);
    return strcat(strcpy(path, folder), rest);
}
