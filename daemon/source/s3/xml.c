#include "source/s3/xml.h"

#include <expat.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/secret.h"

enum { PIECE_BYTES = 64 << 10 /* what libexpat copies at a time */ };

struct text { /* grows */
    char *bytes;
    size_t length, room;
};

struct reader {
    XML_Parser parser;
    xml_element *element;
    void *data;
    struct text path, text;
    size_t starts[XML_MAX_DEPTH]; /* in path, of each open element's name */
    int depth;
    bool is_leaf; /* the innermost element, so far */
    const char *complaint;
};

static void append_bytes(struct text *text, const char *bytes, size_t count)
{
    if (text->length + count + 1 > text->room) {
        struct text larger = {.length = text->length, .room = 2 * (text->length + count + 1)};
        larger.bytes = memory_alloc(larger.room);
        if (text->length)
            memcpy(larger.bytes, text->bytes, text->length);
        secret_free(text->bytes);
        *text = larger;
    }
    memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
}

static void stop_reading(struct reader *reader, const char *complaint)
{
    reader->complaint = reader->complaint ? reader->complaint : complaint;
    XML_StopParser(reader->parser, XML_FALSE);
}

static void XMLCALL on_start(void *data, const char *name, const char **attributes)
{
    struct reader *reader = data;
    const char *colon = strchr(name, ':'), *local = colon ? colon + 1 : name;
    (void)attributes;
    if (reader->depth == XML_MAX_DEPTH || !*local) {
        stop_reading(reader, *local ? "it is nested too deeply" : "a tag has no name");
        return;
    }
    reader->starts[reader->depth++] = reader->path.length;
    append_bytes(&reader->path, "/", reader->path.length ? 1 : 0);
    append_bytes(&reader->path, local, strlen(local));
    reader->is_leaf = true;
    reader->text.length = 0;
    append_bytes(&reader->text, "", 0);
}

static void XMLCALL on_end(void *data, const char *name)
{
    struct reader *reader = data;
    (void)name;
    if (reader->complaint) /* libexpat tells the end of <x/> also when its beginning was refused */
        return;
    if (!reader->element(reader->data, reader->path.bytes, reader->is_leaf ? reader->text.bytes : NULL))
        stop_reading(reader, "an element where there should be none");
    reader->path.length = reader->starts[--reader->depth];
    reader->path.bytes[reader->path.length] = '\0';
    reader->is_leaf = false;
}

static void XMLCALL on_text(void *data, const char *text, int length)
{
    struct reader *reader = data;
    if (reader->is_leaf && !reader->complaint)
        append_bytes(&reader->text, text, (size_t)length);
}

static void XMLCALL on_document_type(void *data, const char *name, const char *system, const char *public, int has_subset)
{
    (void)name, (void)system, (void)public, (void)has_subset;
    stop_reading(data, "it has a document type");
}

static void *realloc_wiped(void *memory, size_t bytes)
{
    size_t had = memory ? malloc_usable_size(memory) : 0;
    void *larger = malloc(bytes);
    if (!larger)
        return NULL;
    if (had)
        memcpy(larger, memory, had < bytes ? had : bytes);
    secret_free(memory);
    return larger;
}

const char *xml_read(const void *bytes, size_t count, xml_element *element, void *data)
{
    static const XML_Memory_Handling_Suite wiped = {malloc, realloc_wiped, secret_free};
    struct reader reader = {.element = element, .data = data, .parser = XML_ParserCreate_MM("UTF-8", &wiped, NULL)};
    enum XML_Status status = XML_STATUS_OK;
    if (!reader.parser)
        return "there is no memory for it";
    XML_SetUserData(reader.parser, &reader);
    XML_SetElementHandler(reader.parser, on_start, on_end);
    XML_SetCharacterDataHandler(reader.parser, on_text);
    XML_SetStartDoctypeDeclHandler(reader.parser, on_document_type);
    for (size_t at = 0; status == XML_STATUS_OK && (at < count || !count); at += PIECE_BYTES) {
        size_t left = count - at, piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        status = XML_Parse(reader.parser, (const char *)bytes + at, (int)piece, piece == left);
        if (!count)
            break;
    }
    const char *wrong = reader.complaint;
    if (!wrong && status != XML_STATUS_OK)
        wrong = XML_ErrorString(XML_GetErrorCode(reader.parser));
    XML_ParserFree(reader.parser);
    secret_free(reader.text.bytes);
    free(reader.path.bytes);
    return wrong;
}
