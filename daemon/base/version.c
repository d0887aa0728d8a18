/* Only the main() of a program knows the commit, so that another commit compiles two files anew and not all of them. */
#include "base/version.h"

#include <stdio.h>

static char text[sizeof VERSION + 16] = VERSION;

void version_set_commit(const char *commit)
{
    snprintf(text, sizeof text, "%s%s%.12s", VERSION, *commit ? "+" : "", commit);
}

const char *version_text(void)
{
    return text;
}
