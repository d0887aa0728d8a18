/* Markup is read tag by tag with an explicit stack of open names, so that every end tag is checked; text is unescaped only
 * when somebody takes it. */
#include "source/s3/xml.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void xml_init(struct xml *xml, const void *bytes, size_t count)
{
    *xml = (struct xml){.at = bytes, .end = (const char *)bytes + count};
    if (count >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0)
        xml->at += 3;
}

static bool fail_xml(struct xml *xml, const char *error)
{
    if (!xml->error)
        xml->error = error;
    return false;
}

static bool starts_with(const struct xml *xml, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(xml->end - xml->at) >= length && memcmp(xml->at, text, length) == 0;
}

static bool skip_past(struct xml *xml, const char *closing)
{
    size_t length = strlen(closing);
    const char *found = memmem(xml->at, (size_t)(xml->end - xml->at), closing, length);
    if (!found)
        return fail_xml(xml, "it is cut off");
    xml->at = found + length;
    return true;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_name_end(char c)
{
    return is_space(c) || c == '>' || c == '/' || c == '<' || c == '=' || c == '"' || c == '\'';
}

static bool take_name(struct xml *xml, struct xml_name *name)
{
    const char *start = xml->at;
    while (xml->at < xml->end && !is_name_end(*xml->at))
        xml->at++;
    const char *colon = memchr(start, ':', (size_t)(xml->at - start));
    *name = (struct xml_name){start, (size_t)(xml->at - start)};
    if (colon)
        *name = (struct xml_name){colon + 1, (size_t)(xml->at - colon - 1)};
    return name->length ? true : fail_xml(xml, "a tag has no name");
}

/* To the '>' of a start tag: a '>' inside quotes is none. */
static bool skip_attributes(struct xml *xml)
{
    char quote = 0;
    for (; xml->at < xml->end; xml->at++) {
        if (quote)
            quote = *xml->at == quote ? 0 : quote;
        else if (*xml->at == '"' || *xml->at == '\'')
            quote = *xml->at;
        else if (*xml->at == '<')
            return fail_xml(xml, "a tag within a tag");
        else if (*xml->at == '>')
            break;
    }
    if (xml->at == xml->end)
        return fail_xml(xml, "it is cut off");
    xml->pending_close = xml->at[-1] == '/';
    xml->at++;
    return true;
}

static bool enter(struct xml *xml, struct xml_name *name)
{
    xml->at++;
    if (!take_name(xml, name) || !skip_attributes(xml))
        return false;
    if (xml->depth == XML_MAX_DEPTH)
        return fail_xml(xml, "it is nested too deeply");
    if (xml->depth == 0 && xml->seen_root)
        return fail_xml(xml, "there are two roots");
    xml->seen_root = true;
    xml->open[xml->depth++] = *name;
    return true;
}

static bool leave(struct xml *xml)
{
    struct xml_name name, *open = &xml->open[xml->depth - 1];
    xml->at += 2;
    if (!take_name(xml, &name))
        return false;
    while (xml->at < xml->end && is_space(*xml->at))
        xml->at++;
    if (name.length != open->length || memcmp(name.text, open->text, name.length) != 0 || !starts_with(xml, ">"))
        return fail_xml(xml, "an end tag does not match");
    xml->at++;
    xml->depth--;
    return true;
}

/* Comments and instructions; false at anything else. */
static bool skip_comment(struct xml *xml)
{
    if (starts_with(xml, "<!--"))
        return skip_past(xml, "-->");
    if (starts_with(xml, "<?"))
        return skip_past(xml, "?>");
    if (starts_with(xml, "<!") && !starts_with(xml, "<![CDATA["))
        return fail_xml(xml, "it has a document type");
    return false;
}

/* What comes next in the element: the '<' of a tag, with the text before it thrown away. */
static bool find_tag(struct xml *xml)
{
    while (!xml->error && xml->at < xml->end) {
        if (skip_comment(xml))
            continue;
        if (xml->error)
            return false;
        if (starts_with(xml, "<![CDATA[")) {
            if (!xml->depth || !skip_past(xml, "]]>"))
                return fail_xml(xml, "text outside of the root");
        } else if (*xml->at == '<') {
            return true;
        } else if (!xml->depth && !is_space(*xml->at)) {
            return fail_xml(xml, "text outside of the root");
        } else {
            xml->at++;
        }
    }
    return false;
}

bool xml_next(struct xml *xml, struct xml_name *name)
{
    if (xml->error)
        return false;
    if (xml->pending_close) {
        xml->pending_close = false;
        xml->depth--;
        return false;
    }
    if (!find_tag(xml))
        return xml->depth || !xml->seen_root ? fail_xml(xml, "it is cut off") : false;
    if (!starts_with(xml, "</"))
        return enter(xml, name);
    if (!xml->depth)
        return fail_xml(xml, "an end tag does not match");
    leave(xml);
    return false;
}

bool xml_skip(struct xml *xml)
{
    int depth = xml->depth - 1;
    struct xml_name name;
    while (!xml->error && xml->depth > depth)
        xml_next(xml, &name);
    return !xml->error;
}

/* --- text --- */

static size_t put_utf8(char *out, uint32_t code)
{
    if (code < 0x80)
        return out[0] = (char)code, 1;
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(marks[n] | code);
    return n;
}

/* "#10" or "#xA"; 0 = no character that a text may hold. */
static uint32_t parse_reference(const char *text, size_t length)
{
    bool hex = length > 1 && text[1] == 'x';
    uint32_t code = 0;
    size_t i = hex ? 2 : 1;
    if (i == length || length > 9)
        return 0;
    for (; i < length; i++) {
        char c = text[i];
        uint32_t value = c >= '0' && c <= '9'          ? (uint32_t)(c - '0')
                         : hex && c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : hex && c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                       : 99;
        if (value == 99)
            return 0;
        code = code * (hex ? 16 : 10) + value;
    }
    return code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : code;
}

/* At '&'. */
static bool take_entity(struct xml *xml, char **out)
{
    static const struct {
        const char *name;
        char character;
    } entities[] = {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
    const char *name = xml->at + 1;
    const char *semicolon = memchr(name, ';', (size_t)(xml->end - name));
    size_t length = semicolon ? (size_t)(semicolon - name) : 0;
    uint32_t code = length && name[0] == '#' ? parse_reference(name, length) : 0;
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++) {
        if (length == strlen(entities[i].name) && memcmp(entities[i].name, name, length) == 0)
            code = (uint32_t)entities[i].character;
    }
    if (!code)
        return fail_xml(xml, "an unknown entity");
    *out += put_utf8(*out, code);
    xml->at = semicolon + 1;
    return true;
}

static bool take_cdata(struct xml *xml, char **out)
{
    const char *start = xml->at + strlen("<![CDATA[");
    if (!skip_past(xml, "]]>"))
        return false;
    size_t length = (size_t)(xml->at - 3 - start);
    memcpy(*out, start, length);
    *out += length;
    return true;
}

static bool take_piece(struct xml *xml, char **out)
{
    if (*xml->at == '&')
        return take_entity(xml, out);
    if (starts_with(xml, "<![CDATA["))
        return take_cdata(xml, out);
    if (*xml->at == '<')
        return skip_comment(xml) || fail_xml(xml, "an element where there should be text");
    if (*xml->at == '\0')
        return fail_xml(xml, "a text holds a NUL");
    *(*out)++ = *xml->at++;
    return true;
}

bool xml_take_text(struct xml *xml, char **text)
{
    struct xml_name name;
    *text = NULL;
    if (xml->error)
        return false;
    if (xml->pending_close) {
        *text = memory_copy_text("");
        return xml_next(xml, &name), true;
    }
    /* What is written is never longer than what was read. Without other markup the element ends at the next "</". */
    const char *close = memmem(xml->at, (size_t)(xml->end - xml->at), "</", 2);
    if (!close)
        return fail_xml(xml, "it is cut off");
    bool plain = !memchr(xml->at, '<', (size_t)(close - xml->at));
    char *out = memory_alloc((size_t)((plain ? close : xml->end) - xml->at) + 1), *start = out;
    while (!xml->error && xml->at < xml->end && !starts_with(xml, "</"))
        take_piece(xml, &out);
    if (!xml->error && xml->at == xml->end)
        fail_xml(xml, "it is cut off");
    if (!xml->error)
        leave(xml);
    if (xml->error || memchr(start, '\0', (size_t)(out - start))) {
        free(start);
        return fail_xml(xml, "a text holds a NUL");
    }
    *out = '\0';
    *text = start;
    return true;
}

bool xml_end(struct xml *xml)
{
    if (!xml->error && xml->depth == 0 && xml->seen_root && !xml->pending_close && find_tag(xml))
        fail_xml(xml, "there are two roots");
    return !xml->error && xml->depth == 0 && xml->seen_root && !xml->pending_close;
}

bool xml_name_is(const struct xml_name *name, const char *text)
{
    return strlen(text) == name->length && memcmp(name->text, text, name->length) == 0;
}
