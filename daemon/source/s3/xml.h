/* Reads the few small XML documents that S3 and STS answer with, by libexpat. A document type is refused, so nothing
 * expands; depth is limited to XML_MAX_DEPTH; all memory that held a part of the document is wiped, because keys come this
 * way. Pure; any thread. */
#ifndef SOURCE_XML_H
#define SOURCE_XML_H

#include <stdbool.h>
#include <stddef.h>

enum { XML_MAX_DEPTH = 16 };

/* Called at the end of every element. `path` names it from the root on, without prefixes of namespaces:
 * "ListBucketResult/Contents/Key". `text` is NULL where it has elements of its own. False ends the reading. */
typedef bool xml_element(void *data, const char *path, const char *text);

/* NULL, or what is wrong: a static text. */
const char *xml_read(const void *bytes, size_t count, xml_element *element, void *data);

#endif
