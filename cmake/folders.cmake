# fettle_folder(NAME [COLD] [LINK libs...] [MODULE folder]) makes the library fettle_NAME from src/NAME/*.cpp and its
# subfolders, except the subfolder that is a module. A release compiles a COLD folder with -O1.
#
# A folder may use only the folders declared before it, so each library links those. scripts/check_layout checks the
# includes.
set(FETTLE_FOLDERS "" CACHE INTERNAL "folders declared so far")

function(fettle_folder name)
  cmake_parse_arguments(ARG "COLD" "MODULE" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp ${CMAKE_SOURCE_DIR}/src/${name}/*/*.cpp
       ${CMAKE_SOURCE_DIR}/src/${name}/*/*/*.cpp)
  if(ARG_MODULE)
    list(FILTER sources EXCLUDE REGEX "/${name}/${ARG_MODULE}/")
  endif()
  if(sources)
    fettle_batches(batches ${name} ${CMAKE_SOURCE_DIR}/src ${sources})
    add_library(fettle_${name} STATIC ${batches})
    if(ARG_COLD)
      target_compile_options(fettle_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
    set(scope PUBLIC)
  else()
    add_library(fettle_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(fettle_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  foreach(above ${FETTLE_FOLDERS})
    target_link_libraries(fettle_${name} ${scope} fettle_${above})
  endforeach()
  target_link_libraries(fettle_${name} ${scope} Threads::Threads ${ARG_LINK})
  set(FETTLE_FOLDERS ${FETTLE_FOLDERS} ${name} CACHE INTERNAL "folders declared so far")
endfunction()
