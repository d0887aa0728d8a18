/* The tensorcast command; everything else is in the library libcli.a so that tests can link it. */
#include "command.h"

int main(int argc, char **argv)
{
    return command_main(argc, argv);
}
