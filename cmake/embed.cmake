# fettle_embed(NAME VARIABLE=FILE...) adds to the library fettle_NAME a source that defines each VARIABLE as a
# std::string_view with the text of FILE, which is relative to src. Headers declare the variables.
#
# The build runs this same file as a script, which writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(content "#include <string_view>\n\nnamespace fettle {\n\n")
  foreach(pair IN LISTS PAIRS)
    string(REGEX MATCH "^([^=]*)=(.*)$" unused "${pair}")
    set(variable ${CMAKE_MATCH_1})
    file(READ "${CMAKE_MATCH_2}" text)
    string(APPEND content "extern const std::string_view ${variable};\nconst std::string_view ${variable} = "
           "R\"fettle_text(${text})fettle_text\";\n\n")
  endforeach()
  file(WRITE "${OUT}" "${content}}  // namespace fettle\n")
  return()
endif()

function(fettle_embed name)
  set(made ${CMAKE_BINARY_DIR}/embedded/${name}.cpp)
  set(pairs)
  set(files)
  foreach(pair IN LISTS ARGN)
    string(REGEX MATCH "^([^=]*)=(.*)$" unused "${pair}")
    list(APPEND files ${CMAKE_SOURCE_DIR}/src/${CMAKE_MATCH_2})
    list(APPEND pairs ${CMAKE_MATCH_1}=${CMAKE_SOURCE_DIR}/src/${CMAKE_MATCH_2})
  endforeach()
  add_custom_command(
    OUTPUT ${made}
    COMMAND ${CMAKE_COMMAND} "-DOUT=${made}" "-DPAIRS=${pairs}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  target_sources(fettle_${name} PRIVATE ${made})
endfunction()
