/* Walks descriptors in their wire form; see rpc_symbols.h. Field numbers are those of google/protobuf/descriptor.proto. */
#include "rpc/rpc_symbols.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct span {
    const uint8_t *at, *end;
};

struct symbol_file {
    struct span all, name, package;
};

struct rpc_symbols {
    struct symbol_file *files;
    size_t n_files, capacity;
};

enum { SET_FILE = 1, FILE_NAME = 1, FILE_PACKAGE = 2, FILE_DEPENDENCY = 3 };

/* Which fields of a declaration hold named declarations, and of what kind. The name of each is its field 1. */
enum kind { IN_FILE, IN_MESSAGE, IN_ENUM, IN_SERVICE, LEAF };
static const struct {
    enum kind parent;
    uint64_t field;
    enum kind child;
} children[] = {
    {IN_FILE, 4, IN_MESSAGE}, {IN_FILE, 5, IN_ENUM},       {IN_FILE, 6, IN_SERVICE},
    {IN_MESSAGE, 2, LEAF},    {IN_MESSAGE, 3, IN_MESSAGE}, {IN_MESSAGE, 4, IN_ENUM},
    {IN_MESSAGE, 8, LEAF},    {IN_ENUM, 2, LEAF},          {IN_SERVICE, 2, LEAF},
};

static bool take_varint(struct span *span, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && span->at < span->end; shift += 7) {
        *value |= (uint64_t)(*span->at & 0x7f) << shift;
        if (!(*span->at++ & 0x80))
            return true;
    }
    return false;
}

/* The next length-delimited field; others are skipped. False at the end. */
static bool next_field(struct span *span, uint64_t *field, struct span *content)
{
    uint64_t tag, length;
    while (take_varint(span, &tag)) {
        if ((tag & 7) == 0 && take_varint(span, &length))
            continue;
        if ((tag & 7) != 2 || !take_varint(span, &length) || length > (uint64_t)(span->end - span->at))
            return false; /* descriptors have no fixed-width fields but in options, which are delimited */
        *field = tag >> 3;
        *content = (struct span){span->at, span->at + length};
        span->at += length;
        return true;
    }
    return false;
}

static struct span find_field(struct span span, uint64_t wanted)
{
    uint64_t field;
    struct span content;
    while (next_field(&span, &field, &content))
        if (field == wanted)
            return content;
    return (struct span){NULL, NULL};
}

static size_t length_of(struct span span)
{
    return (size_t)(span.end - span.at);
}

struct rpc_symbols *rpc_symbols_create(const void *descriptor_set, size_t bytes)
{
    struct rpc_symbols *symbols = memory_alloc(sizeof *symbols);
    struct span set = {descriptor_set, (const uint8_t *)descriptor_set + bytes}, content;
    uint64_t field;
    while (bytes && next_field(&set, &field, &content)) {
        if (field != SET_FILE)
            continue;
        ARRAY_RESERVE(symbols->files, symbols->n_files, symbols->capacity);
        symbols->files[symbols->n_files++] =
            (struct symbol_file){content, find_field(content, FILE_NAME), find_field(content, FILE_PACKAGE)};
    }
    return symbols;
}

void rpc_symbols_destroy(struct rpc_symbols *symbols)
{
    if (!symbols)
        return;
    free(symbols->files);
    free(symbols);
}

size_t rpc_symbols_n_files(const struct rpc_symbols *symbols)
{
    return symbols->n_files;
}

const uint8_t *rpc_symbols_file(const struct rpc_symbols *symbols, int file, size_t *bytes)
{
    *bytes = length_of(symbols->files[file].all);
    return symbols->files[file].all.at;
}

int rpc_symbols_find_file(const struct rpc_symbols *symbols, const char *name)
{
    for (size_t i = 0; i < symbols->n_files; i++) {
        struct span own = symbols->files[i].name;
        if (own.at && length_of(own) == strlen(name) && memcmp(own.at, name, length_of(own)) == 0)
            return (int)i;
    }
    return -1;
}

/* `symbol` is a child of it or something inside that. */
static bool declares(enum kind kind, struct span declaration, const char *symbol)
{
    uint64_t field;
    struct span content;
    while (next_field(&declaration, &field, &content))
        for (size_t i = 0; i < sizeof children / sizeof children[0]; i++) {
            enum kind child = children[i].child;
            struct span name = find_field(content, 1);
            size_t length = length_of(name);
            if (children[i].parent != kind || children[i].field != field)
                continue;
            if (name.at && strncmp((const char *)name.at, symbol, length) == 0 &&
                (!symbol[length] ||
                 (symbol[length] == '.' && child != IN_ENUM && declares(child, content, symbol + length + 1))))
                return true;
            if (child == IN_ENUM && declares(child, content, symbol)) /* values live beside their enum */
                return true;
        }
    return false;
}

int rpc_symbols_find(const struct rpc_symbols *symbols, const char *symbol)
{
    for (size_t i = 0; i < symbols->n_files; i++) {
        struct span package = symbols->files[i].package;
        size_t length = length_of(package);
        const char *rest = symbol;
        if (length && (strncmp((const char *)package.at, symbol, length) != 0 || symbol[length] != '.'))
            continue;
        if (length)
            rest = symbol + length + 1;
        if (declares(IN_FILE, symbols->files[i].all, rest))
            return (int)i;
    }
    return -1;
}

size_t rpc_symbols_closure(const struct rpc_symbols *symbols, int file, int *needed)
{
    size_t n = 0;
    needed[n++] = file;
    for (size_t i = 0; i < n; i++) {
        struct span all = symbols->files[needed[i]].all, content;
        uint64_t field;
        while (next_field(&all, &field, &content)) {
            if (field != FILE_DEPENDENCY)
                continue;
            char *name = memory_alloc(length_of(content) + 1);
            memcpy(name, content.at, length_of(content));
            int found = rpc_symbols_find_file(symbols, name);
            free(name);
            bool is_new = found >= 0;
            for (size_t known = 0; known < n; known++)
                is_new = is_new && needed[known] != found;
            if (is_new)
                needed[n++] = found;
        }
    }
    return n;
}
