/* A target is asked for with HEAD, hop by hop while it stays at home; the first address elsewhere is the target and is not
 * touched here, because it is signed for GET. A refused target is marked by comparing it with the one in use: a later
 * refusal of an older one only causes another try. */
#include "source/redirect.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/url.h"

enum { MAX_HOPS = 5, LIFE_PERCENT = 80, MAX_BODY_BYTES = 64 << 10 };

struct redirect {
    struct stores *stores;
    const struct cancel *cancel; /* of the questions where it leads */
    uid_t uid;                   /* whose questions they are */
    char *from;
    struct http_store home;
    bool is_confined;
    char *if_match;       /* NULL = any version */
    pthread_mutex_t lock; /* of what follows; held while the target is asked for, so that one asks for all */
    char *to;             /* NULL = to be asked for */
    uint64_t renew_ns;    /* 0 = it does not say when it ends */
};

/* A number in the query, as in "X-Amz-Expires=3600". */
static bool query_u64(const char *url, const char *name, uint64_t *value)
{
    const char *at = strchr(url, '?');
    size_t length = strlen(name);
    while (at) {
        at++;
        if (strncmp(at, name, length) == 0 && at[length] == '=' && at[length + 1] >= '0' && at[length + 1] <= '9') {
            *value = strtoull(at + length + 1, NULL, 10);
            return true;
        }
        at = strchr(at, '&');
    }
    return false;
}

uint64_t redirect_life_s(const char *url, uint64_t now_unix_s)
{
    uint64_t value;
    if (query_u64(url, "X-Amz-Expires", &value) || query_u64(url, "X-Goog-Expires", &value))
        return value;
    if (query_u64(url, "Expires", &value))
        return value > now_unix_s ? value - now_unix_s : 1;
    return 0;
}

static void set_target(struct redirect *redirect, char *to)
{
    uint64_t life_s = redirect_life_s(to, (uint64_t)time(NULL));
    free(redirect->to);
    redirect->to = to;
    redirect->renew_ns = life_s ? clock_now_ns() + life_s * (NS_PER_MS * 1000) / 100 * LIFE_PERCENT : 0;
}

/* --- where it leads --- */

static int fail_location(const char *url, const char *complaint, struct error *error)
{
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(BAD_REDIRECT), "%s: %s", redact_show(url), complaint);
}

/* One question: 0 with *next NULL when `url` itself serves the file. */
static int ask_for_target(struct redirect *redirect, const char *url, char **next, struct error *error)
{
    static const struct http_header plain[] = {{"Accept-Encoding", "identity"}};
    const struct http_call call = {.store = &redirect->home,
                                   .method = "HEAD",
                                   .url = url,
                                   .headers = plain,
                                   .n_headers = 1,
                                   .max_reply_bytes = MAX_BODY_BYTES,
                                   .accept_any_status = true,
                                   .cancel = redirect->cancel,
                                   .uid = redirect->uid};
    struct http_reply reply = {0};
    struct error why; /* says something of an accepted refusal, too: kept from those who take it for a failure */
    *next = NULL;
    if (http_fetch(redirect->stores->http, &call, &reply, &why) < 0) {
        *error = why;
        return -1;
    }
    int failed = 0, status = reply.head.status;
    if (status >= 300 && status < 400) {
        const char *location = http_head_find(&reply.head, "location");
        const struct http_hop hop = {url, location, redirect->is_confined};
        *next = location ? http_fence_follow(&redirect->stores->fence, &hop, error) : NULL;
        failed = *next ? 0 : location ? -1 : fail_location(url, "it redirects without saying where to", error);
    } else if (status >= 400) {
        enum http_verdict verdict =
            redirect->home.judge ? redirect->home.judge(redirect->home.data, &reply, error) : http_judge(&reply, error);
        (void)verdict; /* the engine has done what retries could do */
        failed = -1;
    }
    http_reply_clear(&reply);
    return failed;
}

/* Under the lock. */
static int find_target(struct redirect *redirect, struct error *error)
{
    char *url = memory_copy_text(redirect->from), *next;
    for (int hop = 0; hop < MAX_HOPS; hop++) {
        if (ask_for_target(redirect, url, &next, error) < 0) {
            free(url);
            return -1;
        }
        if (!next || !url_is_same_origin(next, redirect->from)) {
            set_target(redirect, next ? next : url);
            if (next)
                free(url);
            return 0;
        }
        free(url);
        url = next;
    }
    fail_location(url, "it redirects in circles", error);
    free(url);
    return -1;
}

static int prepare_range(void *data, struct http_attempt *attempt, struct error *error)
{
    struct redirect *redirect = ((struct object_file *)data)->data;
    pthread_mutex_lock(&redirect->lock);
    bool known = redirect->to && (!redirect->renew_ns || clock_now_ns() < redirect->renew_ns);
    int failed = known ? 0 : find_target(redirect, error);
    bool at_home = !failed && url_is_same_origin(redirect->to, redirect->from);
    if (!failed)
        http_attempt_set_url(attempt, redirect->to);
    pthread_mutex_unlock(&redirect->lock);
    if (!failed && redirect->if_match)
        http_attempt_add_header(attempt, "If-Match", redirect->if_match);
    if (!failed && at_home && redirect->home.prepare)
        failed = redirect->home.prepare(redirect->home.data, attempt, error);
    return failed;
}

/* --- refusals --- */

static enum http_verdict judge_range(void *data, const struct http_reply *reply, struct error *error)
{
    struct redirect *redirect = ((struct object_file *)data)->data;
    bool at_home = reply->url && url_is_same_origin(reply->url, redirect->from);
    enum http_verdict verdict =
        at_home && redirect->home.judge ? redirect->home.judge(redirect->home.data, reply, error) : http_judge(reply, error);
    int status = reply->head.status;
    bool moved = status >= 300 && status < 400, is_refused = moved || status == 401 || status == 403 || status == 410;
    if ((at_home && !moved) || !is_refused)
        return verdict;
    pthread_mutex_lock(&redirect->lock);
    if (redirect->to && reply->url && strcmp(redirect->to, reply->url) == 0) {
        free(redirect->to);
        redirect->to = NULL;
    }
    pthread_mutex_unlock(&redirect->lock);
    return HTTP_RETRY_RENEWED;
}

/* --- a file's life --- */

void redirect_open_file(struct object_file *file, const struct redirect_options *options)
{
    struct redirect *redirect = memory_alloc(sizeof *redirect);
    redirect->stores = file->source->stores;
    redirect->cancel = &file->source->cancel;
    redirect->uid = file->source->base.uid;
    /* as it will be sent, so that an answer's URL can be compared with it */
    struct url url;
    struct error ignored; /* the engine refuses what is no good URL */
    redirect->from = url_parse(file->url, &url, &ignored) < 0 ? memory_copy_text(file->url) : url_print(&url);
    redirect->is_confined = options->is_confined;
    redirect->home = options->home ? *options->home : (struct http_store){0};
    redirect->if_match = memory_copy_text(options->if_match);
    pthread_mutex_init(&redirect->lock, NULL);
    if (options->to)
        set_target(redirect, memory_copy_text(options->to));
    file->data = redirect;
    file->store = (struct http_store){prepare_range, options->check, judge_range, file};
}

void redirect_close_file(struct object_file *file)
{
    struct redirect *redirect = file->data;
    if (!redirect)
        return;
    pthread_mutex_destroy(&redirect->lock);
    free(redirect->if_match);
    free(redirect->from);
    free(redirect->to);
    free(redirect);
}
