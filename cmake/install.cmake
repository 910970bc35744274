# States what `cmake --install` copies, for `make install` and for the packages. lib/fettle has the program and all
# files that it loads; bin/fettle is a link to the program. The loader searches lib/fettle/lib before the system's
# libraries. The build folder has a folder lib, too, so that the program has the same RPATH before and after the
# installation. If the two RPATHs differed, CMake would append an empty entry, and the loader would search the working
# directory.
file(CREATE_LINK ${FETTLE_CACHE}/lib ${CMAKE_BINARY_DIR}/lib SYMBOLIC)
foreach(target fettle fettle_columns fettle_pmix)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/lib")
  # An RPATH also counts for libraries that libraries need; a RUNPATH, the default, does not.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()
install(TARGETS fettle fettle_columns fettle_pmix RUNTIME DESTINATION lib/fettle LIBRARY DESTINATION lib/fettle)
install(FILES ${FETTLE_CACHE}/lib/libarrow.so.2600 ${FETTLE_CACHE}/lib/libparquet.so.2600 DESTINATION lib/fettle/lib)
install(FILES ${FETTLE_CACHE}/plugins/cpu/pjrt_c_api_cpu_plugin.so DESTINATION lib/fettle/plugins/cpu)
install(CODE "
  set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  file(MAKE_DIRECTORY \"\${prefix}/bin\")
  file(CREATE_LINK ../lib/fettle/fettle \"\${prefix}/bin/fettle\" SYMBOLIC)
  file(MAKE_DIRECTORY \"\${prefix}/share/man/man1\")
  execute_process(COMMAND \"${CMAKE_SOURCE_DIR}/packaging/man.py\" \"\${prefix}/bin/fettle\"
                  OUTPUT_FILE \"\${prefix}/share/man/man1/fettle.1\" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND \"${CMAKE_SOURCE_DIR}/packaging/licences.sh\" \"${FETTLE_CACHE}\"
                          \"\${prefix}/share/doc/fettle\" COMMAND_ERROR_IS_FATAL ANY)")
install(FILES packaging/completions/fettle.bash DESTINATION share/bash-completion/completions RENAME fettle)
install(FILES packaging/completions/fettle.zsh DESTINATION share/zsh/site-functions RENAME _fettle)
install(FILES packaging/completions/fettle.fish DESTINATION share/fish/vendor_completions.d)
