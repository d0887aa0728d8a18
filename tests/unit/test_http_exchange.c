/* What of a body is kept; whole exchanges are test_http.c's. */
#include "source/http/http_exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "source/http/http_origin.h"

/* So many bytes that the next ones fit in no memory. */
static void a_body_without_memory_is_an_error_of_its_request(void **state)
{
    struct quota *quota = quota_create();
    struct http_exchange *exchange = calloc(1, sizeof *exchange);
    struct http_arriving *answer = &exchange->answer;
    struct http_origin origin = {0};
    (void)state;
    exchange->order.origin = &origin;
    *answer = (struct http_arriving){.has_head = true, .is_accepted = true, .max_body = SIZE_MAX};
    answer->charge = (struct quota_charge){.quota = quota, .kind = QUOTA_METADATA, .uid = 7};
    assert_true(http_exchange_take_body(exchange, "some", 4));
    uint64_t taken = quota_taken(quota, QUOTA_METADATA);
    assert_in_range(taken, 4, 64);
    answer->n_body = SIZE_MAX / 4;
    assert_false(http_exchange_take_body(exchange, "more", 4));
    assert_int_equal(exchange->outcome.fault, HTTP_FAULT_FINAL);
    assert_string_equal(exchange->outcome.error.reason, "OUT_OF_MEMORY");
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), taken);
    assert_memory_equal(answer->body, "some", 4);
    quota_charge_end(&answer->charge);
    free(answer->body);
    free(exchange);
    quota_destroy(quota);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_without_memory_is_an_error_of_its_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
