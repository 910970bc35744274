# fettle_batches(OUT NAME ROOT sources...) sets OUT to the list of files to compile. If FETTLE_BATCHES is on, these are
# files in ${CMAKE_BINARY_DIR}/batches; each of them includes about FETTLE_BATCH_BYTES of sources. Otherwise they are
# the sources themselves.
#
# Sources of a batch share the parsing of headers and the instantiation of templates, which take more time than their
# own lines. They also share unnamed namespaces, so the names in these must differ within a folder. A batch includes its
# sources by paths relative to ROOT. It contains no absolute path, so checkouts in different folders share its object.
option(FETTLE_BATCHES "Compile the sources of a folder in batches" ON)
set(FETTLE_BATCH_BYTES 90000 CACHE STRING "Bytes of sources that fill a batch")
if(FETTLE_BATCHES AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC takes a batch for the main file. So it warns about members of a source whose types are in its unnamed namespace.
  add_compile_options(-Wno-subobject-linkage)
endif()

function(fettle_batches out name root)
  if(NOT FETTLE_BATCHES)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(files)
  set(number 0)
  set(content)
  set(filled 0)
  foreach(source IN LISTS ARGN)
    file(SIZE ${source} bytes)
    math(EXPR with "${filled} + ${bytes}")
    if(content AND with GREATER FETTLE_BATCH_BYTES)
      file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/batches/${name}_${number}.cpp CONTENT "${content}" @ONLY)
      list(APPEND files ${CMAKE_BINARY_DIR}/batches/${name}_${number}.cpp)
      math(EXPR number "${number} + 1")
      set(content)
      set(with ${bytes})
    endif()
    file(RELATIVE_PATH path ${root} ${source})
    string(APPEND content "#include \"${path}\"\n")
    set(filled ${with})
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/batches/${name}_${number}.cpp CONTENT "${content}" @ONLY)
  list(APPEND files ${CMAKE_BINARY_DIR}/batches/${name}_${number}.cpp)
  set(${out} ${files} PARENT_SCOPE)
endfunction()
