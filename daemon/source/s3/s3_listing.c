/* Unknown elements are skipped; what matters must be there and make sense: a listing without a size or with a page that
 * promises more and does not say where is refused. Keys are decoded only when the server says that it encoded them. */
#include "source/s3/s3_listing.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/s3/xml.h"

struct page {
    struct s3_listing *listing;
    struct s3_entry entry; /* of the <Contents> that is read */
    bool has_size, is_composite, has_algorithm, has_known_algorithm;
    bool truncated, encoded;
    const char *complaint;
};

void s3_listing_clear(struct s3_listing *listing)
{
    for (size_t i = 0; i < listing->n_entries; i++) {
        free(listing->entries[i].key);
        free(listing->entries[i].etag);
    }
    for (size_t i = 0; i < listing->n_prefixes; i++)
        free(listing->prefixes[i]);
    free(listing->prefixes);
    free(listing->entries);
    free(listing->next_token);
    *listing = (struct s3_listing){0};
}

char *s3_quote_etag(const char *etag)
{
    return *etag == '"' || strncmp(etag, "W/", 2) == 0 ? memory_copy_text(etag) : memory_print("\"%s\"", etag);
}

/* One that can stand in a request's header as it is. */
static bool is_entity_tag(const char *etag)
{
    const char *start = etag + (strncmp(etag, "W/", 2) == 0 ? 2 : 0), *end = strchr(*start == '"' ? start + 1 : "", '"');
    for (const char *c = start; *c; c++) {
        if (*c <= ' ' || *c >= 0x7f)
            return false;
    }
    return end && !end[1];
}

/* --- values --- */

static bool parse_size(const char *text, uint64_t *value)
{
    *value = 0;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9' || __builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*c - '0'), value))
            return false;
    }
    return *text != '\0';
}

/* In place: "a%2Fb+c" -> "a/b c". False when it is no such encoding or hides a NUL. */
static bool decode_key(char *text)
{
    for (char *plus = text; (plus = strchr(plus, '+'));)
        *plus = ' ';
    return text_percent_decode(text);
}

/* --- elements --- */

static void clear_entry(struct page *page)
{
    free(page->entry.key);
    free(page->entry.etag);
    page->entry = (struct s3_entry){0};
    page->has_size = page->is_composite = page->has_algorithm = page->has_known_algorithm = false;
}

/* The first of a name counts. */
static void keep_text(char **to, const char *text)
{
    if (!*to)
        *to = memory_copy_text(text);
}

static bool take_field(struct page *page, const char *name, const char *text)
{
    static const char *const algorithms[] = {"CRC32", "CRC32C", "CRC64NVME", "SHA256"};
    bool is_known = strcmp(name, "Key") == 0 || strcmp(name, "ETag") == 0 || strcmp(name, "Size") == 0;
    if (!text)
        return !is_known; /* these have texts and nothing else */
    if (strcmp(name, "Key") == 0)
        keep_text(&page->entry.key, text);
    else if (strcmp(name, "ETag") == 0)
        keep_text(&page->entry.etag, text);
    else if (strcmp(name, "Size") == 0)
        page->has_size = parse_size(text, &page->entry.size_bytes);
    else if (strcmp(name, "ChecksumType") == 0)
        page->is_composite |= strcasecmp(text, "COMPOSITE") == 0;
    if (strcmp(name, "ChecksumAlgorithm") == 0) {
        page->has_algorithm = true;
        for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++)
            page->has_known_algorithm |= strcasecmp(algorithms[i], text) == 0;
    }
    return true;
}

static bool add_entry(struct page *page)
{
    struct s3_listing *listing = page->listing;
    if (!page->entry.key || !page->has_size || listing->n_entries == S3_MAX_PAGE_ENTRIES)
        return false;
    if (page->has_algorithm)
        page->entry.checksum = page->has_known_algorithm && !page->is_composite ? S3_CHECKSUM_WHOLE : S3_CHECKSUM_USELESS;
    ARRAY_RESERVE(listing->entries, listing->n_entries, listing->capacity);
    listing->entries[listing->n_entries++] = page->entry;
    page->entry = (struct s3_entry){0};
    clear_entry(page);
    return true;
}

static bool take_element(void *data, const char *path, const char *text)
{
    static const char root[] = "ListBucketResult", contents[] = "Contents";
    struct page *page = data;
    struct s3_listing *listing = page->listing;
    size_t length = strlen(root);
    if (strncmp(path, root, length) != 0 || (path[length] && path[length] != '/')) {
        page->complaint = "it is no ListBucketResult";
        return false;
    }
    const char *name = path[length] ? path + length + 1 : "";
    bool is_good = true;
    if (strcmp(name, contents) == 0)
        is_good = add_entry(page);
    else if (strncmp(name, "Contents/", sizeof contents) == 0)
        is_good = take_field(page, name + sizeof contents, text);
    else if (text && strcmp(name, "CommonPrefixes/Prefix") == 0) {
        is_good = listing->n_prefixes < S3_MAX_PAGE_ENTRIES;
        if (is_good) {
            ARRAY_RESERVE(listing->prefixes, listing->n_prefixes, listing->prefixes_capacity);
            listing->prefixes[listing->n_prefixes++] = memory_copy_text(text);
        }
    }
    if (!is_good)
        page->complaint = "an entry without a key or a size, or too many of them";
    if (text && strcmp(name, "NextContinuationToken") == 0 && *text)
        keep_text(&listing->next_token, text);
    page->truncated |= text && strcmp(name, "IsTruncated") == 0 && strcasecmp(text, "true") == 0;
    page->encoded |= text && strcmp(name, "EncodingType") == 0 && strcasecmp(text, "url") == 0;
    return is_good;
}

static void complete_page(struct page *page)
{
    struct s3_listing *listing = page->listing;
    for (size_t i = 0; i < listing->n_entries; i++) {
        struct s3_entry *entry = &listing->entries[i];
        if (page->encoded && !decode_key(entry->key))
            page->complaint = "a key that is not encoded as it says";
        if (!entry->etag)
            continue;
        char *quoted = s3_quote_etag(entry->etag);
        bool is_good = *entry->etag && is_entity_tag(quoted);
        free(entry->etag);
        entry->etag = is_good ? quoted : NULL;
        if (!is_good)
            free(quoted);
    }
    for (size_t i = 0; i < listing->n_prefixes; i++) {
        if (page->encoded && !decode_key(listing->prefixes[i]))
            page->complaint = "a prefix that is not encoded as it says";
    }
    if (page->truncated && !listing->next_token)
        page->complaint = "there is more, but it does not say where";
    if (!page->truncated) {
        free(listing->next_token);
        listing->next_token = NULL;
    }
}

int s3_listing_parse(const void *bytes, size_t count, struct s3_listing *listing, struct error *error)
{
    struct page page = {.listing = listing};
    *listing = (struct s3_listing){0};
    const char *wrong = xml_read(bytes, count, take_element, &page);
    if (!page.complaint)
        page.complaint = wrong;
    clear_entry(&page);
    if (!page.complaint)
        complete_page(&page);
    if (!page.complaint)
        return 0;
    s3_listing_clear(listing);
    return fail(error, ERROR_UNAVAILABLE, "BAD_LISTING", "the listing of the bucket cannot be used: %s", page.complaint);
}
