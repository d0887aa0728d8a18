/* libcurl for the command alone, loaded when something first calls it: with the thirty libraries that it needs, it takes longer to load
 * than most commands take, and only those that read or write stores by themselves ever do (--standalone, put, buckets of activations).
 * It is linked in place of -lcurl and -lssl; a function that is missing here is an undefined symbol then. */
#include <curl/curl.h>
#include <dlfcn.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

static void *library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load_library(void)
{
    library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
}

/* Also what libcurl itself needs, such as libssl. An installation without it is broken, and nobody can go on. */
static void *find_function(const char *name)
{
    pthread_once(&once, load_library);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "tensorcast: INTERNAL: stores cannot be reached: %s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    return found;
}

/* In the function of that name: what it stands for. */
#define FOUND(name)                                                                                                         \
    static __typeof__(&name) known;                                                                                         \
    __typeof__(&name) found = __atomic_load_n(&known, __ATOMIC_RELAXED);                                                    \
    if (!found) {                                                                                                           \
        found = (__typeof__(&name))find_function(#name);                                                                    \
        __atomic_store_n(&known, found, __ATOMIC_RELAXED);                                                                  \
    }
#define LATE(type, name, parameters, arguments)                                                                             \
    type name parameters                                                                                                    \
    {                                                                                                                       \
        FOUND(name)                                                                                                         \
        return found arguments;                                                                                             \
    }
#define LATE_NOTHING(name, parameters, arguments)                                                                           \
    void name parameters                                                                                                    \
    {                                                                                                                       \
        FOUND(name)                                                                                                         \
        found arguments;                                                                                                    \
    }
/* One value of any kind follows: a long, a curl_off_t or a pointer, which are passed alike. */
_Static_assert(sizeof(long) == sizeof(void *) && sizeof(curl_off_t) == sizeof(void *), "values of one size");
#define LATE_VALUE(type, name, handle, option)                                                                              \
    type name(handle *of, option which, ...)                                                                                \
    {                                                                                                                       \
        FOUND(name)                                                                                                         \
        va_list values;                                                                                                     \
        va_start(values, which);                                                                                            \
        void *value = va_arg(values, void *);                                                                               \
        va_end(values);                                                                                                     \
        return found(of, which, value);                                                                                     \
    }

/* clang-format off */
LATE(CURLcode, curl_global_init, (long flags), (flags))
LATE(curl_version_info_data *, curl_version_info, (CURLversion age), (age))
LATE(time_t, curl_getdate, (const char *text, const time_t *unused), (text, unused))
LATE(struct curl_slist *, curl_slist_append, (struct curl_slist *list, const char *text), (list, text))
LATE_NOTHING(curl_slist_free_all, (struct curl_slist *list), (list))

LATE(CURL *, curl_easy_init, (void), ())
LATE_NOTHING(curl_easy_cleanup, (CURL *easy), (easy))
LATE_NOTHING(curl_easy_reset, (CURL *easy), (easy))
LATE_VALUE(CURLcode, curl_easy_setopt, CURL, CURLoption)
LATE_VALUE(CURLcode, curl_easy_getinfo, CURL, CURLINFO)
LATE(CURLcode, curl_easy_recv, (CURL *easy, void *bytes, size_t room, size_t *count), (easy, bytes, room, count))
LATE(CURLcode, curl_easy_send, (CURL *easy, const void *bytes, size_t room, size_t *count), (easy, bytes, room, count))
LATE(const char *, curl_easy_strerror, (CURLcode code), (code))

LATE(CURLM *, curl_multi_init, (void), ())
LATE(CURLMcode, curl_multi_cleanup, (CURLM *multi), (multi))
LATE_VALUE(CURLMcode, curl_multi_setopt, CURLM, CURLMoption)
LATE(CURLMcode, curl_multi_add_handle, (CURLM *multi, CURL *easy), (multi, easy))
LATE(CURLMcode, curl_multi_remove_handle, (CURLM *multi, CURL *easy), (multi, easy))
LATE(CURLMcode, curl_multi_perform, (CURLM *multi, int *n_running), (multi, n_running))
LATE(CURLMcode, curl_multi_poll, (CURLM *multi, struct curl_waitfd *more, unsigned n_more, int timeout_ms, int *n_ready),
     (multi, more, n_more, timeout_ms, n_ready))
LATE(CURLMcode, curl_multi_wakeup, (CURLM *multi), (multi))
LATE(CURLMsg *, curl_multi_info_read, (CURLM *multi, int *n_left), (multi, n_left))

LATE(long, SSL_CTX_ctrl, (SSL_CTX *context, int command, long number, void *pointer), (context, command, number, pointer))
LATE_NOTHING(SSL_CTX_set_default_read_buffer_len, (SSL_CTX *context, size_t bytes), (context, bytes))
/* clang-format on */
