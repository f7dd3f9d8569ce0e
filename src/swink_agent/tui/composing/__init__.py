"""What is typed before it is sent: text, history, completion, pastes and pictures. Free of any screen."""
