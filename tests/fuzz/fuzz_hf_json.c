/* What the hub's API answers: a commit, a page of a tree, the link to the next one. Reaches hf_answer.c and hf_trees.c's
 * input. Whatever is accepted makes sense: a commit of 40 digits, entries with a path, a link that was there. The input is
 * the value of a Link: header up to the first line break, then a JSON document. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/hf/hf_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *data, const struct hf_entry *entry, struct error *error)
{
    size_t *n_entries = data;
    if (!entry->path.text || memchr(entry->path.text, 0xff, entry->path.length)) /* not in UTF-8 */
        abort();
    if (entry->checksum.kind != CHECKSUM_NONE && (entry->checksum.kind != CHECKSUM_SHA256 || entry->pin.length != 64))
        abort();
    return ++*n_entries == 100 ? fail(error, ERROR_UNIMPLEMENTED, "ENOUGH", "a hundred") : 0;
}

static void check_link(const char *value)
{
    struct http_header header = {"link", value};
    const struct http_head head = {200, &header, 1};
    char *next = hf_answer_next_page(&head);
    if (next && (!strstr(value, next) || strchr(next, '>') || !strstr(value, "rel=")))
        abort();
    free(next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line_end = memchr(data, '\n', size);
    size_t link = line_end ? (size_t)(line_end - data) : 0, n_entries = 0;
    const uint8_t *body = line_end ? line_end + 1 : data;
    size_t count = size - (size_t)(body - data);
    char commit[HF_COMMIT_CHARS + 1], *value = malloc(link + 1);
    struct error error;
    memcpy(value, data, link);
    value[link] = '\0';
    check_link(value);
    free(value);
    if ((hf_answer_commit(body, count, commit, &error) == 0) != hf_is_commit(commit))
        abort();
    if (hf_answer_page(body, count, take, &n_entries, &error) < 0 && !error.message[0])
        abort();
    return 0;
}
