/* The hub's API: a revision becomes a commit once, the commit's tree gives names, sizes and SHA-256 of what git-lfs keeps,
 * and every URL afterwards holds the commit. The token goes with requests to the endpoint, never with a page's link
 * elsewhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/url.h"
#include "source/environment.h"
#include "source/hf/hf_answer.h"
#include "source/hf/hf_trees.h"
#include "source/hf/source_hf.h"
#include "source/secret.h"

enum { MAX_DOCUMENT_BYTES = OBJECT_MAX_PAGE_BYTES };

static const char *endpoint_of(const struct source_hf *hf)
{
    return hf_settings_of(hf->objects.stores)->base.endpoint;
}

/* --- requests --- */

static int prepare_request(void *data, struct http_attempt *attempt, struct error *error)
{
    const struct source_hf *hf = data;
    (void)error;
    if (hf->token) {
        char *value = memory_print("Bearer %s", hf->token);
        http_attempt_add_header(attempt, "Authorization", value);
        secret_free(value);
    }
    return 0;
}

static enum http_verdict judge_answer(void *data, const struct http_reply *reply, struct error *error)
{
    const struct source_hf *hf = data;
    const char *code = http_head_find(&reply->head, "x-error-code");
    const char *repository = text_show(hf->repository), *revision = text_show(hf->revision);
    const char *whose_token =
        hf->token ? "with the token that was sent" : "without a token (HF_TOKEN, sources.hf.token_file)";
    int status = reply->head.status;
    if (code && strcmp(code, "GatedRepo") == 0)
        fail(error, ERROR_PERMISSION_DENIED, "GATED_REPOSITORY",
             "%s is gated: accept its licence at %s/%s with the account of %s", repository, endpoint_of(hf), repository,
             hf->token ? "the token in use" : "a token, and set HF_TOKEN or sources.hf.token_file");
    else if (code && strcmp(code, "RevisionNotFound") == 0)
        fail(error, ERROR_NOT_FOUND, "NO_SUCH_REVISION", "%s has no revision %s", repository, revision);
    else if (code && strcmp(code, "EntryNotFound") == 0)
        fail(error, ERROR_NOT_FOUND, "NO_SUCH_FILE", "%s@%s has no such file or folder", repository, revision);
    else if (status == 404 && !code && hf->has_asked && strstr(reply->url, "/tree/"))
        fail(error, ERROR_FAILED_PRECONDITION, "NO_TREE",
             "%s knows %s@%s and does not list its files: it answers 404 to %s; a mirror has to pass on the hub's "
             "API api/models/%s/tree, or load a folder of files from the mirror by https://",
             endpoint_of(hf), repository, revision, reply->url, repository);
    else if (status == 404 || (code && strcmp(code, "RepoNotFound") == 0))
        fail(error, ERROR_NOT_FOUND, "NO_SUCH_REPOSITORY", "%s has no %s@%s that may be seen %s", endpoint_of(hf),
             repository, revision, whose_token);
    else if (status == 401 || status == 403)
        fail(error, ERROR_PERMISSION_DENIED, "NOT_ALLOWED", "%s answers %d for %s %s", endpoint_of(hf), status, repository,
             whose_token);
    else
        return http_judge(reply, error);
    if (!hf->token)
        environment_note(error, "HF_TOKEN HF_TOKEN_PATH");
    return HTTP_FAIL;
}

struct http_store hf_api_store(struct source_hf *hf)
{
    return (struct http_store){.prepare = prepare_request, .judge = judge_answer, .data = hf};
}

static int fetch_document_of_hub(struct source_hf *hf, const char *url, uint32_t max_tries, struct http_reply *reply,
                                 struct error *error)
{
    const struct http_store store = hf_api_store(hf);
    const struct http_call call = {.store = &store,
                                   .url = url,
                                   .max_reply_bytes = MAX_DOCUMENT_BYTES,
                                   .max_tries = max_tries,
                                   .follow_redirects = true,
                                   .cancel = &hf->objects.cancel,
                                   .uid = hf->objects.base.uid};
    if (http_fetch(hf->objects.stores->http, &call, reply, error) < 0)
        return -1;
    if (!http_reply_is_page(reply))
        return 0;
    http_reply_clear(reply);
    return fail(error, ERROR_FAILED_PRECONDITION, "WEB_PAGE",
                "%s answers with a web page (HTML) in place of the hub's API: a portal or a proxy in between, or the wrong "
                "HF_ENDPOINT",
                endpoint_of(hf));
}

static int about(const struct source_hf *hf, struct error *error)
{
    return error_prefix(error, "%s, about %s", endpoint_of(hf), text_show(hf->repository));
}

static int fail_document(const struct source_hf *hf, const char *complaint, struct error *error)
{
    fail(error, ERROR_DATA_LOSS, "BAD_ANSWER", "%s", complaint);
    return about(hf, error);
}

/* --- revision -> commit --- */

int hf_api_find_commit(struct source_hf *hf, uint32_t max_tries, struct error *error)
{
    struct http_reply reply = {0};
    if (hf_is_commit(hf->revision)) {
        memcpy(hf->commit, hf->revision, HF_COMMIT_CHARS);
        return 0;
    }
    char *revision = url_encode(hf->revision, strlen(hf->revision), false);
    char *url = memory_print("%s/api/models/%s/revision/%s", endpoint_of(hf), hf->repository, revision);
    int failed = fetch_document_of_hub(hf, url, max_tries, &reply, error);
    if (!failed && hf_answer_commit(reply.body, reply.body_bytes, hf->commit, error) < 0)
        failed = about(hf, error);
    hf->has_asked = !failed;
    http_reply_clear(&reply);
    free(revision);
    free(url);
    return failed;
}

char *hf_api_file_url(const struct source_hf *hf, const char *name)
{
    char *path = memory_print("%s%s%s", hf->folder, *hf->folder ? "/" : "", name);
    char *encoded = url_encode(path, strlen(path), true);
    char *url = memory_print("%s/%s/resolve/%s/%s", endpoint_of(hf), hf->repository, hf->commit, encoded);
    free(path);
    free(encoded);
    return url;
}

/* --- the tree --- */

/* The folder that is being listed, in the folder of the reference: "vision/", mostly "". */
static const char *below_of(const struct source_hf *hf)
{
    return hf->objects.below ? hf->objects.below : "";
}

/* In the folder that is being listed, from that of the reference on; NULL = elsewhere. malloced. */
static char *name_of(const struct source_hf *hf, const struct json_string *path)
{
    char *whole = memory_print("%.*s", (int)path->length, path->text);
    char *prefix = memory_print("%s%s%s", hf->folder, *hf->folder ? "/" : "", below_of(hf));
    const char *name = strlen(whole) == path->length ? object_source_name_below(whole, prefix) : NULL;
    char *copy = name ? memory_print("%s%s", below_of(hf), name) : NULL;
    free(whole);
    free(prefix);
    return copy;
}

struct page_reader {
    struct source_hf *hf;
    bool has_refused; /* it was an entry that could not be added, not the answer */
};

static int add_entry(void *data, const struct hf_entry *entry, struct error *error)
{
    struct page_reader *reader = data;
    struct source_hf *hf = reader->hf;
    struct object object = {.size_bytes = entry->size_bytes, .name = name_of(hf, &entry->path)};
    if (!object.name)
        return 0;
    object.checksums[0] = entry->checksum;
    object.pin = memory_print("%s %.*s", hf->commit, (int)entry->pin.length, entry->pin.text ? entry->pin.text : "");
    object.version = memory_print("commit %s", hf->commit);
    reader->has_refused = object_source_add(&hf->objects, &object, error) != 0;
    return reader->has_refused ? -1 : 0;
}

/* 1 with *url the next page, 0 at the end. */
static int go_to_next_page(struct source_hf *hf, const struct http_reply *reply, char **url, struct error *error)
{
    char *link = hf_answer_next_page(&reply->head);
    if (!link)
        return 0;
    struct error ignored; /* what it says is said below in fewer words */
    char *next = url_resolve(*url, link, &ignored);
    free(link);
    if (!next || !url_is_same_origin(next, endpoint_of(hf)) || strcmp(next, *url) == 0) {
        free(next);
        return fail_document(hf, "the tree's next page is the same page again, or on another server", error);
    }
    free(*url);
    *url = next;
    return 1;
}

/* Page by page, from that URL on. */
static int fetch_tree(struct source_hf *hf, const char *first, struct error *error)
{
    char *url = memory_copy_text(first);
    int more = 1;
    for (int page = 0; more == 1; page++) {
        struct http_reply reply = {0};
        struct page_reader reader = {.hf = hf};
        more = page == OBJECT_MAX_PAGES ? fail_document(hf, "the tree has too many pages", error)
                                        : fetch_document_of_hub(hf, url, 0, &reply, error);
        if (more == 0 && hf_answer_page(reply.body, reply.body_bytes, add_entry, &reader, error) < 0)
            more = reader.has_refused ? -1 : about(hf, error);
        if (more == 0)
            more = go_to_next_page(hf, &reply, &url, error);
        http_reply_clear(&reply);
    }
    free(url);
    return more;
}

/* Of the first page: names endpoint, repository, commit and folder. */
static char *tree_url(const struct source_hf *hf)
{
    const char *below = below_of(hf);
    char *path =
        memory_print("%s%s%.*s", hf->folder, *hf->folder && *below ? "/" : "", (int)strlen(below) - (*below ? 1 : 0), below);
    char *folder = url_encode(path, strlen(path), true);
    char *url = memory_print("%s/api/models/%s/tree/%s%s%s", endpoint_of(hf), hf->repository, hf->commit, *folder ? "/" : "",
                             folder);
    free(path);
    free(folder);
    return url;
}

int hf_api_list(struct object_source *source, struct error *error)
{
    struct source_hf *hf = (struct source_hf *)source;
    char *url = tree_url(hf);
    int known = source->below ? 0 : hf_trees_find(stores_client(source->stores, &source_hf_store), url, source, error);
    int failed = known ? (known < 0 ? -1 : 0) : fetch_tree(hf, url, error);
    free(url);
    return failed;
}

void hf_api_listed(struct object_source *source)
{
    char *url = tree_url((const struct source_hf *)source);
    hf_trees_add(stores_client(source->stores, &source_hf_store), url, source);
    free(url);
}
