/* Each shell has its own way to say the same: the commands, the options of each, and what may stand as a value. */
#include "completion.h"

#include <string.h>

#include "activations_args.h"
#include "args.h"
#include "command_table.h"
#include "tensorcast.h"

const char *const completion_shells[] = {"bash", "zsh", "fish", NULL};

static const char schemes[] = "disk: file:// gs:// s3:// hf:// https://";

static bool takes_option(const struct command_row *command, const struct option_row *option)
{
    return (command->options & option->groups) && !(option->groups & OPTIONS_GLOBAL);
}

/* An option may have several rows, with other meanings to other commands. */
static bool is_first_of_name(const struct option_row *option)
{
    const struct option_row *first = args_options.rows;
    while (strcmp(first->name, option->name) != 0)
        first++;
    return first == option;
}

static bool is_file(const struct option_row *option)
{
    static const char *const kinds[] = {"PATH", "FILE", "DIR", "INDEX.json", "FILE|NAME"};
    for (size_t i = 0; option->value && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(option->value, kinds[i]) == 0)
            return true;
    return false;
}

/* Their values begin with the name of a tensor. */
static bool is_tensor(const struct option_row *option)
{
    return strcmp(option->name, "tensor") == 0 || strcmp(option->name, "slice") == 0;
}

/* A shell waits for it, so that only what is on this machine is asked, from the headers alone, and nothing is said of errors. */
#define NAMES_OF "tensorcast inspect --standalone --names --quiet --timeout 1s"

static bool is_recipe(const struct option_row *option)
{
    return strcmp(option->name, "variant") == 0;
}

/* "auto copied mapped", from the option's own table. --memory means a size to export, and is checked by the command. */
static void print_values(const struct option_row *option, FILE *out)
{
    for (size_t i = 0; option->choices && option->choices[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", option->choices[i]);
    if (strcmp(option->name, "memory") == 0)
        fputs("auto copied mapped", out);
    for (size_t i = 0; is_recipe(option) && tc_builtin_variant(i, NULL); i++)
        fprintf(out, "%s%s", i ? " " : "", tc_builtin_variant(i, NULL));
}

static bool has_values(const struct option_row *option)
{
    return option->choices || is_recipe(option) || strcmp(option->name, "memory") == 0;
}

/* Of commands whose next word is one of a few. */
static bool has_words(int command)
{
    return command == COMMAND_COMPLETION || command == COMMAND_ACTIVATIONS;
}

static void print_words(int command, FILE *out)
{
    if (command == COMMAND_COMPLETION)
        fputs("bash zsh fish", out);
    for (int i = 0; command == COMMAND_ACTIVATIONS && i < ACTIVATIONS_COMMANDS; i++)
        fprintf(out, "%s%s", i ? " " : "", activations_command_name((enum activations_command)i));
}

/* `activations` has a table of its own; NULL = no more of it. */
static const struct option_row *find_own_option(int command, size_t index)
{
    return command == COMMAND_ACTIVATIONS ? activations_own_option(index) : NULL;
}

/* --- bash --- */

static void print_commands(FILE *out, const char *between)
{
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "%s%s", i ? between : "", command_table[i].name);
}

/* "inspect", or "inspect | ls" */
static void print_names(int command, const char *between, FILE *out)
{
    const char *alias = command_table[command].alias;
    fprintf(out, "%s%s%s", command_table[command].name, alias ? between : "", alias ? alias : "");
}

static void print_all_names(const char *between, FILE *out)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fputs(i ? between : "", out);
        print_names(i, between, out);
    }
}

static void print_bash_values(FILE *out)
{
    const char *between = "";
    for (size_t i = 0; i < args_options.n_rows; i++) {
        const struct option_row *option = &args_options.rows[i];
        if (!has_values(option) || !is_first_of_name(option))
            continue;
        fprintf(out, "        --%s) COMPREPLY=($(compgen -W \"", option->name);
        print_values(option, out);
        fprintf(out, "\" -- \"$word\")%s); return ;;\n", is_file(option) ? " $(compgen -f -- \"$word\")" : "");
    }
    fputs("        ", out);
    for (size_t i = 0; i < args_options.n_rows; i++)
        if (is_file(&args_options.rows[i]) && !has_values(&args_options.rows[i]) &&
            is_first_of_name(&args_options.rows[i])) {
            fprintf(out, "%s--%s", between, args_options.rows[i].name);
            between = " | ";
        }
    fputs(" | -o) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n        ", out);
    for (size_t i = 0; i < args_options.n_rows; i++)
        if (args_options.rows[i].value && !is_file(&args_options.rows[i]) && !has_values(&args_options.rows[i]) &&
            !is_tensor(&args_options.rows[i]) && is_first_of_name(&args_options.rows[i]))
            fprintf(out, "--%s | ", args_options.rows[i].name);
    fputs("-t) return ;;\n", out);
}

static void print_bash_tensors(FILE *out)
{
    fputs("        --tensor | --slice)\n"
          "            for ((i = 2; i < COMP_CWORD; i++)); do # the artifact, when it is a path; bash splits disk: from it\n"
          "                [[ ${COMP_WORDS[i]} == [/.~]* || -e ${COMP_WORDS[i]} ]] || continue\n"
          "                while IFS= read -r name; do # not compgen -W, which would run what a name holds\n"
          "                    [[ $name != \"$word\"* ]] || COMPREPLY+=(\"$(printf %q \"$name\")\")\n"
          "                done < <(" NAMES_OF " \"${COMP_WORDS[i]}\" 2>/dev/null)\n"
          "                break\n            done\n            return ;;\n",
          out);
}

static void print_bash(FILE *out)
{
    fputs("# bash completion for tensorcast(1), made by `tensorcast completion bash`\n_tensorcast()\n{\n"
          "    local name word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=\"\" "
          "options i\n"
          "    [[ $word != = ]] || word=\"\" # of --option=value bash makes three words\n"
          "    [[ $previous != = || $COMP_CWORD -lt 2 ]] || previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    case $previous in\n",
          out);
    print_bash_values(out);
    print_bash_tensors(out);
    fputs("    esac\n    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${COMP_WORDS[i]} in\n            ", out);
    print_all_names(" | ", out);
    fputs(") command=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n    options=\"", out);
    for (size_t i = 0; i < args_options.n_rows; i++)
        if (args_options.rows[i].groups & OPTIONS_GLOBAL)
            fprintf(out, "--%s ", args_options.rows[i].name);
    fputs("\"\n    case $command in\n        \"\") options+=\" ", out);
    print_commands(out, " ");
    fputs(" help\" ;;\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fputs("        ", out);
        print_names(i, " | ", out);
        fputs(") options+=\"", out);
        for (size_t k = 0; k < args_options.n_rows; k++)
            if (takes_option(&command_table[i], &args_options.rows[k]))
                fprintf(out, " --%s", args_options.rows[k].name);
        for (size_t k = 0; find_own_option(i, k); k++)
            fprintf(out, " --%s", find_own_option(i, k)->name);
        fputs(has_words(i) ? " " : "", out);
        print_words(i, out);
        fprintf(out, "%s%s\" ;;\n", command_table[i].takes_artifact ? " " : "",
                command_table[i].takes_artifact ? schemes : "");
    }
    fputs("    esac\n"
          "    if [[ $command == put && -n $word && $word != -* && $previous != : ]]; then # any file\n"
          "        COMPREPLY=($(compgen -f -- \"$word\") $(compgen -W \"$options\" -- \"$word\"))\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        return\n"
          "    fi\n"
          "    # bash splits words at ':', so a reference arrives as disk, ':' and its path; of stores it knows nothing\n"
          "    [[ $previous != : || ${COMP_WORDS[COMP_CWORD - 2]-} == @(disk|file) ]] || return\n"
          "    if [[ $word == [/.~]* || $previous == : ]]; then\n"
          "        COMPREPLY=($(compgen -d -S / -- \"$word\") $(compgen -f -X '!*.safetensors' -- \"$word\"))\n"
          "        compopt -o nospace 2>/dev/null\n"
          "        return\n"
          "    fi\n"
          "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
          "    [[ $options != *' disk: '* || $word == -* ]] || # an artifact may be a bare name\n"
          "        COMPREPLY+=($(compgen -d -S / -- \"$word\") $(compgen -f -X '!*.safetensors' -- \"$word\"))\n"
          "    [[ ${COMPREPLY[0]-} != *[:/] ]] || compopt -o nospace 2>/dev/null\n"
          "}\ncomplete -F _tensorcast tensorcast\n",
          out);
}

/* --- zsh --- */

/* Between single quotes and brackets. */
static void print_zsh_text(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fprintf(out, "%s%c", strchr("[]:\\", *text) ? "\\" : "", *text);
    }
}

static void print_zsh_option(const struct option_row *option, FILE *out)
{
    fprintf(out, " \\\n                '%s--%s%s[", option->kind == OPTION_CALL && !option->choices ? "*" : "", option->name,
            option->value ? "=" : "");
    print_zsh_text(option->help, out);
    fputc(']', out);
    if (option->value) {
        fputs(":", out);
        print_zsh_text(option->value, out);
        fputs(":", out);
    }
    if (has_values(option)) {
        fputs("(", out);
        print_values(option, out);
        fputs(")", out);
    } else if (is_file(option) || is_tensor(option)) {
        fputs(is_file(option) ? "_files" : "_tensorcast_tensors", out);
    }
    fputc('\'', out);
}

static void print_zsh_options(const struct command_row *command, FILE *out)
{
    for (size_t k = 0; k < args_options.n_rows; k++)
        if ((args_options.rows[k].groups & OPTIONS_GLOBAL) || (command && takes_option(command, &args_options.rows[k])))
            print_zsh_option(&args_options.rows[k], out);
}

static void print_zsh(FILE *out)
{
    fprintf(out,
            "#compdef tensorcast\n# zsh completion for tensorcast(1), made by `tensorcast completion zsh`\n"
            "_tensorcast_artifact() {\n    _alternative 'paths:path:_files' 'schemes:scheme:compadd -S \"\" -- %s'\n}\n\n"
            "_tensorcast_tensors() {\n    local -a names\n    local word artifact\n    for word in ${words[2,-1]}; do\n"
            "        [[ $word == (disk:|)[/.~]* || -e ${(Q)word} ]] || continue\n"
            "        artifact=$word\n        break\n    done\n"
            "    [[ -z $artifact ]] || names=(${(f)\"$(" NAMES_OF " ${(Q)artifact} 2>/dev/null)\"})\n"
            "    compadd -a names\n}\n\n"
            "_tensorcast() {\n    local state line\n    local -a commands\n    commands=(",
            schemes);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "\n        '%s:", command_table[i].name);
        print_zsh_text(command_table[i].summary, out);
        fputc('\'', out);
    }
    fputs("\n    )\n    _arguments -C", out);
    print_zsh_options(NULL, out);
    fputs(
        " \\\n                '1:command:->command' '*::argument:->rest'\n"
        "    case $state in\n        command) _describe command commands ;;\n        rest)\n            case $words[1] in\n",
        out);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fputs("            ", out);
        print_names(i, " | ", out);
        fputs(") _arguments", out);
        print_zsh_options(&command_table[i], out);
        for (size_t k = 0; find_own_option(i, k); k++)
            print_zsh_option(find_own_option(i, k), out);
        fprintf(out, " \\\n                '%s", has_words(i) ? "1:word:(" : "");
        print_words(i, out);
        fprintf(out, "%s*:%s' ;;\n", has_words(i) ? ")' '" : "",
                command_table[i].takes_artifact ? "artifact:_tensorcast_artifact" : "argument:_files");
    }
    fputs("            esac ;;\n    esac\n}\ncompdef _tensorcast tensorcast\n", out);
}

/* --- fish --- */

static void print_fish_text(const char *text, FILE *out)
{
    fputc('\'', out);
    for (; *text; text++)
        fprintf(out, "%s%c", *text == '\'' || *text == '\\' ? "\\" : "", *text);
    fputc('\'', out);
}

static void print_fish_meaning(const struct option_row *option, FILE *out)
{
    fprintf(out, " -l %s%s", option->name, !option->value ? "" : is_file(option) ? " -r -F" : " -x");
    if (has_values(option)) {
        fputs(" -a '", out);
        print_values(option, out);
        fputc('\'', out);
    }
    fputs(" -d ", out);
    print_fish_text(option->help, out);
    fputc('\n', out);
}

static void print_fish_option(const struct option_row *option, FILE *out)
{
    fputs("complete -c tensorcast", out);
    if (!(option->groups & OPTIONS_GLOBAL)) {
        fputs(" -n '__fish_seen_subcommand_from", out);
        for (int i = 0; i < COMMAND_COUNT; i++)
            if (takes_option(&command_table[i], option)) {
                fputc(' ', out);
                print_names(i, " ", out);
            }
        fputc('\'', out);
    }
    if (is_tensor(option))
        fputs(" -a '(__tensorcast_tensors)'", out);
    print_fish_meaning(option, out);
}

static void print_fish(FILE *out)
{
    fputs("# fish completion for tensorcast(1), made by `tensorcast completion fish`\n"
          "function __tensorcast_tensors\n    for word in (commandline -opc)[3..]\n"
          "        if string match -qr '^(disk:)?[/.~]' -- $word; or test -e $word\n            " NAMES_OF
          " $word 2>/dev/null\n"
          "            return\n        end\n    end\nend\nset -l commands ",
          out);
    print_all_names(" ", out);
    fputs("\ncomplete -c tensorcast -n \"not __fish_seen_subcommand_from $commands\" -f\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "complete -c tensorcast -n \"not __fish_seen_subcommand_from $commands\" -a %s -d ",
                command_table[i].name);
        print_fish_text(command_table[i].summary, out);
        fputc('\n', out);
        if (command_table[i].takes_artifact)
            fprintf(out, "complete -c tensorcast -n '__fish_seen_subcommand_from %s' -a '%s'\n", command_table[i].name,
                    schemes);
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (!has_words(i))
            continue;
        fprintf(out, "complete -c tensorcast -n '__fish_seen_subcommand_from %s'%s -a '", command_table[i].name,
                i == COMMAND_COMPLETION ? " -f" : "");
        print_words(i, out);
        fputs("'\n", out);
    }
    for (size_t i = 0; i < args_options.n_rows; i++)
        print_fish_option(&args_options.rows[i], out);
    for (size_t k = 0; find_own_option(COMMAND_ACTIVATIONS, k); k++) {
        fputs("complete -c tensorcast -n '__fish_seen_subcommand_from activations'", out);
        print_fish_meaning(find_own_option(COMMAND_ACTIVATIONS, k), out);
    }
}

void completion_print(const char *shell, FILE *out)
{
    static void (*const printers[])(FILE * out) = {print_bash, print_zsh, print_fish};
    for (size_t i = 0; completion_shells[i]; i++)
        if (strcmp(shell, completion_shells[i]) == 0)
            printers[i](out);
}
