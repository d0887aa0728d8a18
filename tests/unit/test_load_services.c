/* What loads need of their process: made together, given back together, also when only a part was made. */
#include "load/load_services.h"
#include "base/loop.h"
#include "load/load_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h> /* last: it has a macro called fail */

static void a_failed_start_is_given_back_like_a_whole_one(void **state)
{
    const struct load_room room = {.host_budget_bytes = 1 << 20};
    struct config config = *config_defaults();
    struct load_services services = {.loop = loop_create(), .config = &config};
    struct error error;
    (void)state;
    assert_int_equal(load_services_open(&services, &room, &error), 0);
    assert_non_null(services.engine);
    assert_int_equal(replica_budget_bytes(services.targets->list[LOAD_TARGET_HOST].replicas), 1 << 20);
    load_services_close(&services);
    struct load_services half = {.loop = services.loop, .config = &config};
    half.targets = load_targets_create(half.loop, &config, 1 << 20, false);
    load_services_close(&half);
    loop_destroy(services.loop);
}

static void roots_bind_all_but_who_has_started_the_process(void **state)
{
    struct config config = *config_defaults();
    struct load_services services = {.config = &config};
    (void)state;
    assert_false(load_services_source_options(&services, &config, 1000, NULL).allow_relative);
    assert_int_equal(load_services_source_options(&services, &config, 1000, NULL).uid, 1000);
    services.of_one_user = true;
    assert_true(load_services_source_options(&services, &config, 1000, NULL).allow_relative);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_start_is_given_back_like_a_whole_one),
        cmocka_unit_test(roots_bind_all_but_who_has_started_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
