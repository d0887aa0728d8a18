# bash completion for tensorcast(1); installed as share/bash-completion/completions/tensorcast
_tensorcast()
{
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command="" options
    local view="--view --tensor --slice --tp-size --tp-rank --tp-rule --mesh --mesh-rank --spec --placements --best-effort"
    local variant="--variant --set"
    local strategy="--executor --collective --placement --device --group --rank --world-size --source-locality --source-sharing-domain --memory"
    local export="--out --mapping --dtype --no-sidecars --force --resume --verify --memory --progress" i

    case $previous in
        --executor) COMPREPLY=($(compgen -W "auto generic local collective" -- "$word")); return ;;
        --memory) [[ " ${COMP_WORDS[*]} " == *" "@(export|fuse|reshard)" "* ]] || COMPREPLY=($(compgen -W "auto copied mapped" -- "$word")); return ;;
        --collective) COMPREPLY=($(compgen -W "auto required disabled" -- "$word")); return ;;
        --placement) COMPREPLY=($(compgen -W "source packed" -- "$word")); return ;;
        --source-locality) COMPREPLY=($(compgen -W "auto host_local shared_source" -- "$word")); return ;;
        --index) COMPREPLY=($(compgen -W "source canonical" -- "$word")); return ;;
        --variant) COMPREPLY=($(compgen -W "hf-llama-to-torchtitan torchtitan-to-hf-llama moe-upcycle fp8-block-to-bf16" -- "$word") $(compgen -f -- "$word")); return ;;
        --socket | --view | --out | --sidecars) COMPREPLY=($(compgen -f -- "$word")); return ;;
        --format) COMPREPLY=($(compgen -W "hf topology dcp" -- "$word")); return ;;
        --progress) COMPREPLY=($(compgen -W "auto bar plain json none" -- "$word")); return ;;
        --uneven) COMPREPLY=($(compgen -W "error ceil share" -- "$word")); return ;;
        --mapping | --input-dir | --output-dir | -o) COMPREPLY=($(compgen -f -- "$word")); return ;;
        --mesh) COMPREPLY=($(compgen -W "v5e-8 v5e-64 v5litepod-64 v5e-128 v5e-256 v4-32 v4-64" -- "$word")); return ;;
        --set | --tensor | --slice | --mesh-rank | --spec | --placements | --best-effort | --tp-size | --tp-rank | --tp-rule | --device | --group | --rank | --world-size | --source-sharing-domain | --chunk-bytes | \
            --max-file-size | --dtype | --target-world-size | -t | --hold | --timeout) return ;;
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            inspect | load | explain | status | prewarm | unpin | release | verify | fetch | plan | manifest | export | fuse | reshard | variants | folder) command=${COMP_WORDS[i]}; break ;;
        esac
    done
    options="--socket --json --quiet --timeout --help --version"
    case $command in
        "") options+=" inspect load explain status prewarm unpin release verify fetch plan manifest export fuse reshard variants folder" ;;
        inspect) options+=" $variant --tensor --summary --index --allow-missing-shards --standalone disk:" ;;
        load) options+=" $view $variant $strategy --allow-missing-shards --out --digest --hold --standalone disk:" ;;
        explain) options+=" $view $variant $strategy --allow-missing-shards --standalone disk:" ;;
        status) options+=" --watch" ;;
        prewarm) options+=" --detach --pin $view $variant $strategy --allow-missing-shards disk:" ;;
        unpin | release) options+=" --all disk:" ;;
        manifest) options+=" --out --allow-missing-shards --standalone disk:" ;;
        verify) options+=" --allow-missing-shards --standalone disk:" ;;
        plan) options+=" --compat --allow-missing-shards --world-size --chunk-bytes --standalone disk:" ;;
        export) options+=" $view $variant --allow-missing-shards $export --format --world-size --rank --uneven --max-file-size disk:" ;;
        fuse) options+=" $export --allow-missing-shards --input-dir --output-dir -o" ;;
        reshard) options+=" $export --allow-missing-shards --input-dir --output-dir --target-world-size --rank --uneven -o -t" ;;
        fetch) options+=" --sidecars --tensors --all --hub-cache --allow-missing-shards --standalone disk:" ;;
        folder) options+=" $variant --allow-missing-shards disk:" ;;
    esac
    # bash splits words at ':', so an artifact arrives as disk, ':' and its path
    if [[ $word == /* || $previous == : ]]; then
        COMPREPLY=($(compgen -d -S / -- "$word") $(compgen -f -X '!*.safetensors' -- "$word"))
        compopt -o nospace 2>/dev/null
        return
    fi
    COMPREPLY=($(compgen -W "$options" -- "$word"))
    [[ ${COMPREPLY[0]-} != disk: ]] || compopt -o nospace 2>/dev/null
}
complete -F _tensorcast tensorcast
