# Libraries from the distribution; their package names are in scripts/packages.txt.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_package(Protobuf REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(ICU REQUIRED IMPORTED_TARGET icu-uc icu-i18n)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(HIREDIS REQUIRED IMPORTED_TARGET hiredis)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(PMIX REQUIRED IMPORTED_TARGET pmix)
pkg_check_modules(CAIRO REQUIRED IMPORTED_TARGET cairo cairo-svg cairo-png)

# yaml-cpp 0.8 moved its target into a namespace.
if(NOT TARGET yaml-cpp)
  add_library(yaml-cpp ALIAS yaml-cpp::yaml-cpp)
endif()

# The headers pjrt_c_api.h and xla/ffi/api, which scripts/setup.sh puts into the cache.
add_library(fettle_headers INTERFACE)
target_include_directories(fettle_headers SYSTEM INTERFACE ${FETTLE_CACHE}/include)

# fettle_proto(FOLDER/NAME) makes the library fettle_NAME_proto with the header <NAME.pb.h> from src/FOLDER/NAME.proto.
set(fettle_proto_folder ${CMAKE_BINARY_DIR}/proto)
file(MAKE_DIRECTORY ${fettle_proto_folder})
function(fettle_proto path)
  get_filename_component(name ${path} NAME)
  get_filename_component(folder ${CMAKE_SOURCE_DIR}/src/${path} DIRECTORY)
  set(made ${fettle_proto_folder}/${name})
  add_custom_command(
    OUTPUT ${made}.pb.cc ${made}.pb.h
    COMMAND protobuf::protoc --cpp_out=${fettle_proto_folder} --proto_path=${folder} ${name}.proto
    DEPENDS ${folder}/${name}.proto)
  add_library(fettle_${name}_proto STATIC ${made}.pb.cc)
  target_include_directories(fettle_${name}_proto SYSTEM PUBLIC ${fettle_proto_folder})
  target_link_libraries(fettle_${name}_proto PUBLIC protobuf::libprotobuf-lite)
endfunction()
fettle_proto(plan/compiled/hlo)
fettle_proto(report/trackers/event)
fettle_proto(report/trackers/wandb_record)
fettle_proto(runtime/compile_options)
fettle_proto(tokenizer/models/sentencepiece)

# The Arrow library, which scripts/setup.sh puts into the cache.
if(NOT EXISTS ${FETTLE_CACHE}/lib/libparquet.so.2600)
  message(FATAL_ERROR "${FETTLE_CACHE}/lib/libparquet.so.2600 is missing: run scripts/setup.sh first")
endif()
add_library(fettle_arrow INTERFACE)
target_include_directories(fettle_arrow SYSTEM INTERFACE ${FETTLE_CACHE}/include/pyarrow)
target_link_libraries(fettle_arrow INTERFACE ${FETTLE_CACHE}/lib/libparquet.so.2600 ${FETTLE_CACHE}/lib/libarrow.so.2600)
