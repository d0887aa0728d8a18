/* A name that nobody answers for holds up only what is asked of it. getaddrinfo() is ours here: libcurl finds this one. */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/http_scene.h"

#include <cmocka.h>

static const char silent[] = "silent.invalid";
static atomic_bool is_released;
static atomic_int n_asked;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *found = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&real, &found, sizeof real);
    if (!node || strcmp(node, silent) != 0)
        return real(node, service, hints, result);
    atomic_fetch_add(&n_asked, 1);
    while (!atomic_load(&is_released))
        http_script_rest(1);
    return EAI_AGAIN;
}

static void *read_from_silence(void *data)
{
    unsigned char byte;
    struct iovec iov = {&byte, 1};
    const struct http_range range = {
        .url = "https://silent.invalid/o", .name = "o", .iov = &iov, .n_iov = 1, .object_bytes = 1};
    http_read_range(http_scene.engine, &range, data);
    return NULL;
}

static void a_name_that_nobody_answers_for_holds_up_no_other_host(void **state)
{
    pthread_t thread;
    struct error error;
    (void)state;
    http_scene_start((struct http_engine_options){.connect_timeout_ms = 50, .max_tries = 3, .backoff_ms = 1});
    pthread_create(&thread, NULL, read_from_silence, &error);
    pthread_join(thread, NULL); /* the look-ups go on, each in a thread that may have to wait for a processor */
    for (int ms = 0; atomic_load(&n_asked) < 3 && ms < 5000; ms++)
        http_script_rest(1);
    assert_int_equal(atomic_load(&n_asked), 3);
    assert_int_equal(error.code, ERROR_UNAVAILABLE);
    assert_true(http_scene_has_read());
}

static int release(void **state)
{
    atomic_store(&is_released, true);
    return http_scene_close(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_name_that_nobody_answers_for_holds_up_no_other_host, http_scene_open, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
