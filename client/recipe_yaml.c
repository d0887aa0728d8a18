#include "recipe_yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/map.h"
#include "base/text.h"

struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    const char *name;
    struct arena *arena;
    struct map anchors;          /* of scalars */
    struct recipe_node anchored; /* a list */
    size_t anchored_capacity;
    struct error *error;
};

/* --- errors --------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int fail_line(struct reader *reader, size_t line, const char *format, ...)
{
    char message[ERROR_MESSAGE_CHARS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s:%zu: %s", text_show(reader->name), line, message);
}

static int fail_event(struct reader *reader, const char *message)
{
    return fail_line(reader, reader->event.start_mark.line + 1, "%s", message);
}

static int fail_syntax(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *problem = parser->problem ? parser->problem : "it cannot be read";
    size_t line = parser->error == YAML_READER_ERROR ? parser->mark.line + 1 : parser->problem_mark.line + 1;
    return fail_line(reader, line, "this is no YAML: %s%s%s", problem, parser->context ? " " : "",
                     parser->context ? parser->context : "");
}

static int next_event(struct reader *reader)
{
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event))
        return 0;
    memset(&reader->event, 0, sizeof reader->event);
    return fail_syntax(reader);
}

/* --- scalars -------------------------------------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *words)
{
    while (*words && strcmp(text, *words) != 0)
        words++;
    return *words != NULL;
}

static bool is_fraction(const char *text)
{
    static const char *const words[] = {".inf",  ".Inf",  ".INF", "+.inf", "+.Inf", "+.INF", "-.inf",
                                        "-.Inf", "-.INF", ".nan", ".NaN",  ".NAN",  NULL};
    size_t at = strspn(text, "+-"), n_digits = strspn(text + at, "0123456789");
    if (is_one_of(text, words))
        return true;
    if (at > 1)
        return false;
    at += n_digits;
    if (text[at] == '.') {
        size_t more = strspn(text + at + 1, "0123456789");
        n_digits += more;
        at += more + 1;
    }
    if (n_digits && (text[at] == 'e' || text[at] == 'E')) {
        at += 1 + (text[at + 1] == '+' || text[at + 1] == '-');
        size_t exponent = strspn(text + at, "0123456789");
        if (!exponent)
            return false;
        at += exponent;
    }
    return n_digits && !text[at];
}

/* The integers of YAML's core schema that are not decimal: 0x1f, 0o17. */
static bool is_hex_or_octal(const char *text, int64_t *number)
{
    bool is_hex = strncmp(text, "0x", 2) == 0;
    if (!is_hex && strncmp(text, "0o", 2) != 0)
        return false;
    size_t n_digits = strspn(text + 2, is_hex ? "0123456789abcdefABCDEF" : "01234567");
    if (!n_digits || text[2 + n_digits])
        return false;
    errno = 0;
    *number = strtoll(text + 2, NULL, is_hex ? 16 : 8);
    return errno == 0;
}

/* What a plain scalar is. */
static void resolve_plain(struct recipe_node *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL}, *const falses[] = {"false", "False", "FALSE", NULL};
    if (is_one_of(node->text, nulls)) {
        node->kind = NODE_NULL;
    } else if (is_one_of(node->text, trues) || is_one_of(node->text, falses)) {
        node->kind = NODE_BOOL;
        node->number = is_one_of(node->text, trues);
    } else if (recipe_text_is_number(node->text, node->length, &node->number) ||
               is_hex_or_octal(node->text, &node->number)) {
        node->kind = NODE_NUMBER;
    } else if (is_fraction(node->text)) {
        node->kind = NODE_FRACTION;
    }
}

static int check_tag(struct reader *reader, const yaml_char_t *tag, const char *const *core)
{
    const char *text = (const char *)tag;
    if (!tag || strcmp(text, "!") == 0 || is_one_of(text, core))
        return 0;
    return fail_event(reader, "tags (!name) are not allowed");
}

/* What a tag says of a value, "!!int" of one that is none. */
static int check_kind(struct reader *reader, const char *tag, enum recipe_node_kind kind)
{
    static const char *const tags[] = {[NODE_NULL] = YAML_NULL_TAG,
                                       [NODE_BOOL] = YAML_BOOL_TAG,
                                       [NODE_NUMBER] = YAML_INT_TAG,
                                       [NODE_FRACTION] = YAML_FLOAT_TAG,
                                       [NODE_TEXT] = YAML_STR_TAG};
    return strcmp(tag, tags[kind]) == 0 ? 0 : fail_event(reader, "the tag is not that of its value");
}

static int read_scalar(struct reader *reader, struct recipe_node *node)
{
    static const char *const core[] = {YAML_STR_TAG, YAML_INT_TAG, YAML_NULL_TAG, YAML_BOOL_TAG, YAML_FLOAT_TAG, NULL};
    const char *text = (const char *)reader->event.data.scalar.value;
    const char *tag = (const char *)reader->event.data.scalar.tag;
    size_t length = reader->event.data.scalar.length;
    if (check_tag(reader, reader->event.data.scalar.tag, core) < 0)
        return -1;
    if (memchr(text, 0, length))
        return fail_event(reader, "a text may not hold a NUL character");
    char *copy = arena_try_bytes(reader->arena, length + 1, reader->error);
    if (!copy)
        return -1;
    memcpy(copy, text, length + 1);
    node->kind = NODE_TEXT;
    node->text = copy;
    node->length = length;
    bool is_plain = reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !tag;
    bool is_told = tag && strcmp(tag, "!") != 0 && strcmp(tag, YAML_STR_TAG) != 0;
    if (is_plain || is_told)
        resolve_plain(node);
    return is_told ? check_kind(reader, tag, node->kind) : 0;
}

/* --- anchors -------------------------------------------------------------------------------------------------------- */

static int add_anchor(struct reader *reader, const yaml_char_t *anchor, const struct recipe_node *node)
{
    if (!anchor)
        return 0;
    size_t length = strlen((const char *)anchor);
    char *key = arena_try_bytes(reader->arena, length + 1, reader->error);
    if (!key)
        return -1;
    memcpy(key, anchor, length + 1);
    map_remove(&reader->anchors, key, length); /* a later anchor of the same name counts */
    map_add(&reader->anchors, key, length, (uint32_t)reader->anchored.n_items);
    struct recipe_node *kept = recipe_node_add(&reader->anchored, &reader->anchored_capacity, reader->arena, reader->error);
    if (kept)
        *kept = *node;
    return kept ? 0 : -1;
}

/* A list or a mapping takes an anchor's name away from a value that had it. */
static void forget_anchor(struct reader *reader, const yaml_char_t *anchor)
{
    if (anchor)
        map_remove(&reader->anchors, (const char *)anchor, strlen((const char *)anchor));
}

static int read_alias(struct reader *reader, struct recipe_node *node)
{
    const char *anchor = (const char *)reader->event.data.alias.anchor;
    uint32_t found = map_find(&reader->anchors, anchor, strlen(anchor));
    if (found == MAP_NONE)
        return fail_event(reader,
                          "an alias (*name) may stand for a single value that has an anchor (&name), not for a list or "
                          "a mapping: write that out");
    uint32_t line = node->line;
    *node = reader->anchored.items[found];
    node->line = line;
    return 0;
}

/* --- the tree ------------------------------------------------------------------------------------------------------- */

static int read_node(struct reader *reader, int depth, struct recipe_node *node);

/* Up to the event that ends it. Keys of maps are read as values are, then seen as text. */
static int read_items(struct reader *reader, int depth, yaml_event_type_t end, struct recipe_node *node)
{
    size_t capacity = 0;
    for (;;) {
        struct recipe_node item = {0};
        if (next_event(reader) < 0)
            return -1;
        if (reader->event.type == end)
            return 0;
        bool is_key = node->kind == NODE_MAP && node->n_items % 2 == 0;
        if (is_key && reader->event.type != YAML_SCALAR_EVENT)
            return fail_event(reader, "a key has to be text");
        if (read_node(reader, depth + 1, &item) < 0)
            return -1;
        if (is_key)
            item.kind = NODE_TEXT;
        struct recipe_node *place = recipe_node_add(node, &capacity, reader->arena, reader->error);
        if (!place)
            return -1;
        *place = item;
    }
}

static int read_collection(struct reader *reader, int depth, struct recipe_node *node)
{
    static const char *const map_tags[] = {YAML_MAP_TAG, NULL}, *const list_tags[] = {YAML_SEQ_TAG, NULL};
    const struct recipe_node *key;
    bool is_map = reader->event.type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *tag = is_map ? reader->event.data.mapping_start.tag : reader->event.data.sequence_start.tag;
    if (check_tag(reader, tag, is_map ? map_tags : list_tags) < 0)
        return -1;
    forget_anchor(reader, is_map ? reader->event.data.mapping_start.anchor : reader->event.data.sequence_start.anchor);
    if (depth > RECIPE_MAX_DEPTH)
        return fail_event(reader, "there are too many levels of lists and mappings");
    node->kind = is_map ? NODE_MAP : NODE_LIST;
    if (read_items(reader, depth, is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT, node) < 0)
        return -1;
    int found = is_map ? recipe_node_find_duplicate(node, &key, reader->error) : 0;
    if (found < 0)
        return -1;
    if (found)
        return fail_line(reader, key->line, "'%s' is there twice", text_show_bytes(key->text, key->length));
    return 0;
}

/* Of the event at hand. */
static int read_node(struct reader *reader, int depth, struct recipe_node *node)
{
    node->line = (uint32_t)reader->event.start_mark.line + 1;
    switch (reader->event.type) {
    case YAML_SCALAR_EVENT:
        if (read_scalar(reader, node) < 0)
            return -1;
        return add_anchor(reader, reader->event.data.scalar.anchor, node);
    case YAML_ALIAS_EVENT:
        return read_alias(reader, node);
    default:
        return read_collection(reader, depth, node);
    }
}

static int read_document(struct reader *reader, struct recipe_node *node)
{
    if (next_event(reader) < 0 || next_event(reader) < 0) /* NOLINT(misc-redundant-expression): two events */
        return -1;                                        /* the stream's start, then a document's or the stream's end */
    if (reader->event.type == YAML_STREAM_END_EVENT)
        return fail_line(reader, 1, "it is empty; a recipe has `version: 1` and `steps:`");
    if (next_event(reader) < 0 || read_node(reader, 1, node) < 0)
        return -1;
    if (next_event(reader) < 0 || next_event(reader) < 0) /* NOLINT(misc-redundant-expression): two events */
        return -1;                                        /* the document's end, then the stream's */
    return reader->event.type == YAML_STREAM_END_EVENT ? 0 : fail_event(reader, "a second document begins here");
}

static const char byte_order_mark[] = "\xEF\xBB\xBF"; /* which some editors put in front of UTF-8 */

int recipe_yaml_parse(const char *text, size_t length, const char *name, struct arena *arena, struct recipe_node *node,
                      struct error *error)
{
    struct reader reader = {.name = name, .arena = arena, .error = error};
    *node = (struct recipe_node){0};
    if (!yaml_parser_initialize(&reader.parser))
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory to read a recipe");
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    size_t skipped = length >= strlen(byte_order_mark) && memcmp(text, byte_order_mark, strlen(byte_order_mark)) == 0
                         ? strlen(byte_order_mark)
                         : 0;
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text + skipped, length - skipped);
    map_init(&reader.anchors, 0);
    int failed = read_document(&reader, node);
    map_fini(&reader.anchors);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return failed;
}
