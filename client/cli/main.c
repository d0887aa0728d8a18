/* The tensorcast command; everything else is in the library libcli.a so that tests can link it. */
#include "base/version.h"
#include "command.h"
#include "commit.h"

int main(int argc, char **argv)
{
    version_set_commit(COMMIT);
    return command_main(argc, argv);
}
