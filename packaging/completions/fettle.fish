# Completion of fettle's command line for fish. `fettle complete` lists the candidates.
function __fettle_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for line in ($words[1] complete $words[2..] "$word" 2>/dev/null)
        if test "$line" = :files
            set -l key (string match -r '^[^=]*=' -- $word; or echo '')
            for file in (__fish_complete_path (string replace -r '^[^=]*=' '' -- $word))
                echo $key$file
            end
        else
            echo $line
        end
    end
end
complete -c fettle -f -a '(__fettle_complete)'
