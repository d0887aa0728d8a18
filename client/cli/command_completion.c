/* A shell's script asks this command for what may stand at the end of a command line: `tensorcast completion SHELL -- WORD...`
 * with the last word as far as it is typed. Each line of the answer is a word, or WORD<tab>MEANING; ":files" and ":artifact"
 * stand for what the shell finds by itself. The script takes the words that begin as the last one does. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

static const char script_of_bash[] =
    "# bash completion for tensorcast(1), made by `tensorcast completion bash`\n_tensorcast()\n{\n"
    "    local line word=${COMP_WORDS[COMP_CWORD]}\n"
    "    [[ $word != = ]] || word=\"\" # of --option=value bash makes three words\n"
    "    # bash splits words at ':', so a reference arrives as disk, ':' and its path; of stores it knows nothing\n"
    "    [[ ${COMP_WORDS[COMP_CWORD - 1]} != : || ${COMP_WORDS[COMP_CWORD - 2]-} == @(disk|file) ]] || return\n"
    "    while IFS= read -r line; do\n"
    "        case $line in\n"
    "            :files) COMPREPLY+=($(compgen -f -- \"$word\")); compopt -o filenames 2>/dev/null ;;\n"
    "            :artifact) COMPREPLY+=($(compgen -d -S / -- \"$word\") $(compgen -f -X '!*.safetensors' -- \"$word\")) ;;\n"
    "            *)\n"
    "                line=${line%%$'\\t'*} # not compgen -W, which would run what a tensor's name holds\n"
    "                [[ $line != \"$word\"* ]] || COMPREPLY+=(\"$(printf %q \"$line\")\") ;;\n"
    "        esac\n"
    "    done < <(tensorcast completion bash -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
    "    [[ ${COMPREPLY[0]-} != *[:/] ]] || compopt -o nospace 2>/dev/null\n"
    "}\ncomplete -F _tensorcast tensorcast\n";

static const char script_of_zsh[] =
    "#compdef tensorcast\n# zsh completion for tensorcast(1), made by `tensorcast completion zsh`\n_tensorcast() {\n"
    "    local line\n    local -a found\n"
    "    for line in \"${(@f)$(tensorcast completion zsh -- \"${(@Q)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
    "        case $line in\n"
    "            :files|:artifact) _files ;;\n"
    "            *[:/]) compadd -S '' -- $line ;;\n"
    "            ?*) found+=(${${line//:/\\\\:}/$'\\t'/:}) ;;\n"
    "        esac\n    done\n    _describe tensorcast found\n}\ncompdef _tensorcast tensorcast\n";

static const char script_of_fish[] =
    "# fish completion for tensorcast(1), made by `tensorcast completion fish`\nfunction __tensorcast\n"
    "    set -l words (commandline -opc)\n    set -l word (commandline -ct)\n"
    "    tensorcast completion fish -- $words[2..-1] \"$word\" 2>/dev/null | while read -l line\n"
    "        switch $line\n            case ':files' ':artifact'\n                __fish_complete_path \"$word\"\n"
    "            case '*'\n                echo $line\n        end\n    end\nend\n"
    "complete -c tensorcast -f -a '(__tensorcast)'\n";

/* before: what of the last word stays, "--option=". */
static void print_words(const char *const *words, int n_before, const char *before)
{
    while (*words)
        printf("%.*s%s\n", n_before, before, *words++);
}

/* The names of the tensors, from the headers alone, for a shell waits: only an artifact on this machine is asked. */
static void print_tensors(const char *const *words, size_t n)
{
    size_t i = 0;
    while (i < n && !strchr("/.~", words[i][0]) && access(words[i], F_OK) != 0)
        i++;
    fflush(stdout);
    if (i < n)
        execl("/proc/self/exe", "tensorcast", "inspect", "--standalone", "--names", "--quiet", "--timeout", "1s", "--",
              words[i], NULL);
}

/* words: from the command on; of the last one n_before bytes stay, "--option=", or none. */
static void print_values(const struct option_row *option, const char *const *words, size_t n, int n_before)
{
    static const char *const memories[] = {"auto", "copied", "mapped", NULL}; /* or a size, to export */
    static const char *const files[] = {"PATH", "FILE", "DIR", "INDEX.json", "FILE|NAME"};
    const char *last = words[n - 1];
    if (option->choices)
        print_words(option->choices, n_before, last);
    if (strcmp(option->name, "memory") == 0)
        print_words(memories, n_before, last);
    for (size_t i = 0; strcmp(option->name, "variant") == 0 && tc_builtin_variant(i, NULL); i++)
        printf("%.*s%s\n", n_before, last, tc_builtin_variant(i, NULL));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(option->value, files[i]) == 0)
            puts(":files");
    if (!n_before && (strcmp(option->name, "tensor") == 0 || strcmp(option->name, "slice") == 0))
        print_tensors(words, n - 1);
}

static void print_commands(int first, int end)
{
    for (int i = first; i < end; i++)
        printf("%s\t%s\n", command_table[i].name, command_table[i].summary);
}

/* What may stand behind the command. */
static void print_operands(int command)
{
    static const char *const schemes[] = {"disk:", "file://", "gs://", "s3://", "hf://", "https://", NULL};
    if (command == COMMAND_COMPLETION)
        print_words(args_shells, 0, "");
    else if (command < 0)
        puts("help");
    else if (command_table[command].operand == OPERAND_WORD)
        puts(":files");
    else if (command_table[command].operand != OPERAND_NONE)
        puts(":artifact");
    if (command >= 0 && command < COMMAND_ACTIVATIONS && command_table[command].operand != OPERAND_NONE)
        print_words(schemes, 0, "");
    if (command < 0)
        print_commands(0, COMMAND_TOP_COUNT);
    if (command == COMMAND_ACTIVATIONS)
        print_commands(COMMAND_TOP_COUNT, COMMAND_COUNT);
}

/* words[n - 1]: the one to be completed. Bash gives the '=' of --option=value as a word. */
static void complete_line(const char *const *words, size_t n)
{
    const char *name = n > 2 && strcmp(words[n - 2], "=") == 0 ? words[n - 3] : n > 1 ? words[n - 2] : "";
    const char *equals = strncmp(words[n - 1], "--", 2) == 0 ? strchr(words[n - 1], '=') : NULL;
    int command = -1, n_before = equals ? (int)(equals - words[n - 1]) + 1 : 0;
    size_t at = 0;
    for (size_t i = 0; i + 1 < n && (command < 0 || command == COMMAND_ACTIVATIONS); i++) {
        int found = command_find(command, words[i]);
        command = found < 0 ? command : found;
        at = found < 0 ? at : i + 1;
    }
    name = equals                    ? words[n - 1]
           : strcmp(name, "-o") == 0 ? "--out"
           : strcmp(name, "-t") == 0 ? "--target-world-size"
                                     : name;
    const struct option_row *option =
        strncmp(name, "--", 2) == 0 ? option_find(name + 2, n_before ? (size_t)n_before - 3 : strlen(name + 2)) : NULL;
    if (option && option->value) {
        print_values(option, words + at, n - at, n_before);
        return;
    }
    print_operands(command);
    int groups = OPTIONS_GLOBAL | (command < 0 || command == COMMAND_ACTIVATIONS ? 0 : command_table[command].options);
    for (size_t i = 0; i < n_option_rows; i++)
        if (option_rows[i].groups & groups)
            printf("--%s\t%s\n", option_rows[i].name, option_rows[i].help);
}

int command_completion(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    (void)error;
    if (args->n_more_artifacts) {
        complete_line(args->more_artifacts, args->n_more_artifacts);
        return 0;
    }
    fputs(args->artifact[0] == 'b' ? script_of_bash : args->artifact[0] == 'z' ? script_of_zsh : script_of_fish, stdout);
    printf("# It completes these commands:"); /* for people who look into the script */
    for (int i = 0; i < COMMAND_COUNT; i++)
        printf(" %s", command_table[i].name);
    printf("\n# and these options:");
    for (size_t i = 0; i < n_option_rows; i++)
        printf(" --%s", option_rows[i].name);
    putchar('\n');
    return 0;
}
