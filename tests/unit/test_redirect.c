/* How long signed URLs live. */
#include "tests/support/unit.h"

#include "source/redirect.h"

TEST(signed_urls_say_how_long_they_live)
{
    assert_int_equal(redirect_life_s("https://h/x?a=1&X-Amz-Expires=3600&b=2", 1000), 3600);
    assert_int_equal(redirect_life_s("https://h/x?X-Goog-Expires=60", 1000), 60);
    assert_int_equal(redirect_life_s("https://h/x?Expires=1500&Signature=x", 1000), 500);
    assert_int_equal(redirect_life_s("https://h/x?Expires=900", 1000), 1);
    assert_int_equal(redirect_life_s("https://h/Expires=900?NotExpires=9", 1000), 0);
    assert_int_equal(redirect_life_s("https://h/x?X-Amz-Expires=soon", 1000), 0);
}
