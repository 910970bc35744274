// Lets a PJRT plugin use the run's store, through which the plugin's clients find each other. Only for client.cpp.
#pragma once

struct PJRT_Client_Create_Args;

namespace fettle {

class Rendezvous;

// Sets the callbacks that read and write the store. The client's threads call them, so `run` must outlive the client.
void offer_store(Rendezvous& run, PJRT_Client_Create_Args& args);

}  // namespace fettle
