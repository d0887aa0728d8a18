/* A pull parser for the few flat XML documents that S3 and STS answer with. It knows elements, text, the five entities and
 * character references; attributes, comments and the prolog are skipped, a DOCTYPE is refused, so nothing expands.
 * Depth is limited to XML_MAX_DEPTH. Every function returns false once something is wrong; xml_end() tells.
 *     struct xml xml; xml_init(&xml, bytes, n);
 *     if (xml_next(&xml, &name))                        the root element
 *         while (xml_next(&xml, &name))                 its children
 *             xml_name_is(&name, "Key") ? xml_take_text(&xml, &text) : xml_skip(&xml);
 *     if (!xml_end(&xml)) ...
 * Pure; any thread. */
#ifndef SOURCE_XML_H
#define SOURCE_XML_H

#include <stdbool.h>
#include <stddef.h>

enum { XML_MAX_DEPTH = 16 };

struct xml_name { /* without a namespace prefix; points into the document */
    const char *text;
    size_t length;
};

struct xml {
    const char *at, *end;
    struct xml_name open[XML_MAX_DEPTH];
    int depth;
    bool pending_close; /* <a/>: its end comes before anything else is looked at */
    bool seen_root;
    const char *error; /* static text, NULL while all is well */
};

void xml_init(struct xml *xml, const void *bytes, size_t count);
/* Enters the next child of the element we are in, or the root; false at the end tag, which leaves the element. */
bool xml_next(struct xml *xml, struct xml_name *name);
/* Leaves the element with its text: a malloced string without NULs. Children are an error. */
bool xml_take_text(struct xml *xml, char **text);
bool xml_skip(struct xml *xml); /* leaves the element, whatever it holds */
bool xml_end(struct xml *xml);  /* the root was left, nothing follows, nothing was wrong */
bool xml_name_is(const struct xml_name *name, const char *text);

#endif
