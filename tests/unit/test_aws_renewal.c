/* The life of keys for S3: when they are renewed, and by whom. No test shows a secret. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "source/s3/aws_credentials.h"
#include "tests/support/aws_scene.h"
#include "tests/support/fake_http.h"

#include <cmocka.h>

/* --- the life of keys --- */

static const struct fake_route container_1[] = {
    {"GET", "http://169.254.170.2/c", 200, AWS_SCENE_KEYS("AK1", "T", "2001-09-09T02:46:40Z"), NULL, NULL}, {0}};

static const struct fake_route container_2[] = {
    {"GET", "http://169.254.170.2/c", 200, AWS_SCENE_KEYS("AK2", "T", "2001-09-09T03:46:40Z"), NULL, NULL}, {0}};

static void keys_are_renewed_ten_minutes_before_they_expire(void **state)
{
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = aws_scene_create(NULL);
    assert_string_equal(aws_scene_get(credentials), "AK1:" AWS_SCENE_SECRET ":T");
    aws_scene_now_s = 1000003600 - 601;
    fake_reset(container_2);
    assert_string_equal(aws_scene_get(credentials), "AK1:" AWS_SCENE_SECRET ":T");
    assert_int_equal(fake_requests, 0);
    aws_scene_now_s = 1000003600 - 600;
    assert_string_equal(aws_scene_get(credentials), "AK2:" AWS_SCENE_SECRET ":T");
    assert_int_equal(fake_requests, 1);
    aws_credentials_destroy(credentials);
}

static void old_keys_are_used_while_they_are_valid_when_new_ones_cannot_be_had(void **state)
{
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = aws_scene_create(NULL);
    aws_scene_get(credentials);
    fake_reset(NULL);
    aws_scene_now_s = 1000003600 - 600;
    assert_string_equal(aws_scene_get(credentials), "AK1:" AWS_SCENE_SECRET ":T");
    assert_string_equal(aws_scene_get(credentials), "AK1:" AWS_SCENE_SECRET ":T");
    assert_int_equal(fake_requests, 1); /* not asked again at once */
    aws_scene_now_s += 31;
    aws_scene_get(credentials);
    assert_int_equal(fake_requests, 2);
    aws_scene_now_s = 1000003600;
    aws_scene_contains(aws_scene_get(credentials), "nobody answers");
    aws_credentials_destroy(credentials);
}

static void refused_keys_are_replaced_and_others_are_not(void **state)
{
    struct aws_keys keys;
    struct error error;
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = aws_scene_create(NULL);
    assert_int_equal(aws_credentials_get(credentials, NULL, &keys, &error), 0);
    fake_reset(container_2);
    aws_credentials_refused(credentials, keys.generation);
    assert_string_equal(aws_scene_get(credentials), "AK2:" AWS_SCENE_SECRET ":T");
    aws_credentials_refused(credentials, keys.generation); /* a late answer about the first ones */
    aws_scene_get(credentials);
    assert_int_equal(fake_requests, 1);
    aws_keys_clear(&keys);
    aws_credentials_destroy(credentials);
}

static void keys_that_are_expired_when_they_come_are_an_error(void **state)
{
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    aws_scene_now_s = 1000003600;
    aws_scene_contains(aws_scene_get_once(NULL), "CREDENTIALS_EXPIRED");
}

enum { N_THREADS = 8 };
static pthread_barrier_t all_started;

static void wait_for_all(void)
{
    pthread_barrier_wait(&all_started); /* nobody's get can have ended before everybody has begun */
}

static void *get_in_thread(void *data)
{
    struct aws_keys keys;
    struct error error;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int n_begun;
    pthread_mutex_lock(&lock);
    bool last = ++n_begun == N_THREADS;
    pthread_mutex_unlock(&lock);
    if (last)
        pthread_barrier_wait(&all_started);
    assert_int_equal(aws_credentials_get(data, NULL, &keys, &error), 0);
    bool right = strcmp(keys.access_key, "AK1") == 0;
    aws_keys_clear(&keys);
    return right ? data : NULL;
}

static void many_who_ask_at_once_cause_one_request(void **state)
{
    pthread_t threads[N_THREADS];
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    pthread_barrier_init(&all_started, NULL, 2);
    fake_on_request = wait_for_all;
    struct aws_credentials *credentials = aws_scene_create(NULL);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_in_thread, credentials), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, credentials);
    }
    assert_int_equal(fake_requests, 1);
    aws_credentials_destroy(credentials);
    pthread_barrier_destroy(&all_started);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(keys_are_renewed_ten_minutes_before_they_expire, aws_scene_clean),
        cmocka_unit_test_setup(old_keys_are_used_while_they_are_valid_when_new_ones_cannot_be_had, aws_scene_clean),
        cmocka_unit_test_setup(refused_keys_are_replaced_and_others_are_not, aws_scene_clean),
        cmocka_unit_test_setup(keys_that_are_expired_when_they_come_are_an_error, aws_scene_clean),
        cmocka_unit_test_setup(many_who_ask_at_once_cause_one_request, aws_scene_clean),
    };
    return cmocka_run_group_tests(tests, aws_scene_open, aws_scene_close);
}
